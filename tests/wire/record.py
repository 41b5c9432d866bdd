"""The recorder of the shared wire tools, told of the calls that Muster's tasks make of each other beside TensorFlow's.

    record.py TOOLS_FOLDER ARGUMENTS...
"""
import runpy
import sys

from google.protobuf import empty_pb2

tools = sys.argv.pop(1)
sys.path.insert(0, tools)

import messages  # noqa: E402  (of the tools)

messages.M.update({name + kind: empty_pb2.Empty for name in ("Hello", "Status") for kind in ("Request", "Response")})
sys.argv[0] = tools + "/record.py"
runpy.run_path(sys.argv[0], run_name="__main__")
