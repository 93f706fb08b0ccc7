"""The product: records, pure steps, stores, models. Nothing in it reports to anyone."""

import os

# Libraries read these when they are imported, so they are set before any of ours is. onnxruntime would send events to
# its maker and keep them in the user's cache folder; the other name is the common one.
os.environ.update({"ORT_DISABLE_TELEMETRY": "1", "DO_NOT_TRACK": "1"})  # noqa: TID251  # written, not read
