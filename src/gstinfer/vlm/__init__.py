"""Vision-language models beside a stream: segments of frames, questions about them, and who answers."""

from gstinfer.vlm.backend import Backend, BackendOptions, as_backend
from gstinfer.vlm.call import Call, Trouble
from gstinfer.vlm.dispatcher import Dispatcher
from gstinfer.vlm.prompts import Prompt, Prompts
from gstinfer.vlm.schema import AnswerSchema
from gstinfer.vlm.segments import Cut, SamplingPlan, Segment, StreamSampler
from gstinfer.vlm.trigger import Condition

__all__ = [
    "AnswerSchema",
    "Backend",
    "BackendOptions",
    "Call",
    "Condition",
    "Cut",
    "Dispatcher",
    "Prompt",
    "Prompts",
    "SamplingPlan",
    "Segment",
    "StreamSampler",
    "Trouble",
    "as_backend",
]
