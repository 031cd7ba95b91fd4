"""Decodes a Perfetto trace from standard input with Perfetto's own definitions; prints its packets as JSON.

Fails on anything that these definitions do not know.
"""

import json
import sys

from google.protobuf.json_format import MessageToDict
from google.protobuf.unknown_fields import UnknownFieldSet
from perfetto.protos.perfetto.trace import perfetto_trace_pb2


def refuse_unknown_fields(message):
    unknown = [field.field_number for field in UnknownFieldSet(message)]
    if unknown:
        sys.exit(f"{message.DESCRIPTOR.full_name} has no fields with the numbers {unknown}")
    for field, value in message.ListFields():
        if field.message_type:
            for part in value if field.is_repeated else [value]:
                refuse_unknown_fields(part)


trace = perfetto_trace_pb2.Trace.FromString(sys.stdin.buffer.read())
refuse_unknown_fields(trace)
json.dump(MessageToDict(trace, preserving_proto_field_name=True)["packet"], sys.stdout)
