"""Lines of tasks that share a process: whole, even if several write at the same time."""
import io
import threading

from muster import _tasks


class _Recorder(io.StringIO):
    def __init__(self):
        super().__init__()
        self.pieces = []

    def write(self, text):
        self.pieces.append(text)
        return len(text)


def test_lines_are_written_whole():
    stream = _Recorder()
    output = _tasks._Output(stream)
    print("one", 2, file=output)
    output.write("no end")
    assert stream.pieces == ["one 2\n"]
    output.end_line()
    assert stream.pieces == ["one 2\n", "no end\n"]


def test_begun_lines_of_all_threads_are_ended():
    stream = _Recorder()
    output = _tasks._Output(stream)
    thread = threading.Thread(target=output.write, args=("of a thread that is gone",))
    thread.start()
    thread.join(60)
    output.write("of this one")
    output.end_line()
    assert sorted(stream.pieces) == ["of a thread that is gone\n", "of this one\n"]
    output.end_line()
    assert len(stream.pieces) == 2


def test_a_line_of_a_thread_is_not_cut_by_another():
    stream = _Recorder()
    output = _tasks._Output(stream)
    output.write("first ")
    thread = threading.Thread(target=output.write, args=("other\n",))
    thread.start()
    thread.join(60)
    output.write("second\n")
    assert stream.pieces == ["other\n", "first second\n"]


def test_lines_of_two_threads_do_not_mix():
    stream = _Recorder()
    output = _tasks._Output(stream)

    def speak(word):
        for _ in range(500):
            print(word, word, file=output)

    threads = [threading.Thread(target=speak, args=(word,)) for word in ("a", "b")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    lines = "".join(stream.pieces).splitlines()
    assert sorted(lines) == ["a a"] * 500 + ["b b"] * 500
