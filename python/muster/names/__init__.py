"""TensorFlow's names: where each leads, and why some lead nowhere."""
