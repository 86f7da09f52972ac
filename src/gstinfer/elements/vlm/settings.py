"""The properties of pyvlm."""

from __future__ import annotations

from gstinfer.errors import ConfigError
from gstinfer.settings import Settings, option
from gstinfer.vlm import SamplingPlan

__all__ = ["VlmSettings"]


class VlmSettings(Settings):
    """What a user may set on pyvlm."""

    model = option(
        str, "", "Who answers: openai:URL#MODEL, transformers:FOLDER, vllm:FOLDER, module:Name or file.py:Name"
    )
    model_args = option(str, "", "Keyword arguments for a model in this process: key=value, key=value")
    model_instance_id = option(str, "", "Elements with the same id share one model, its mailbox and its workers")
    device = option(str, "cpu", "Where a model in this process runs: cpu, cuda or cuda:N")
    key_env = option(str, "", "Name of the environment variable that holds the server's key; empty for no key")
    prompt = option(
        str,
        "",
        "The question; {stream_id} {num_frames} {timestamps} {objects} {labels} are filled in",
        mutable=True,
    )
    system_prompt = option(str, "", "What the model is told before the question; same placeholders", mutable=True)
    prompts = option(
        str, "", "TOML file with prompts, also of single streams; read again when it changes"
    )
    response_schema = option(str, "", "JSON Schema file that answers must fit")
    on = option(
        str,
        "frames",
        "What is asked about: segments of whole frames, or each tracked object once",
        choices=("frames", "objects"),
    )
    segment = option(float, 4.0, "Seconds of a segment", minimum=0.01)
    overlap = option(float, 0.0, "Seconds of a segment that the next one shows again", minimum=0)
    fps = option(float, 2.0, "Frames sampled per second", minimum=0.001, maximum=1000)
    every = option(int, 0, "Sample every N-th frame instead; 0 for fps", minimum=0)
    scene = option(
        float, 0.0, "Sample only where the picture changed by this share since the last sample; 0 for always",
        minimum=0, maximum=1,
    )  # fmt: skip
    max_frames = option(int, 16, "Most frames of a segment; where there would be more, every second is let go", minimum=1)
    size = option(int, 448, "Longer side of a sampled frame in pixels", minimum=16)
    labels = option(str, "", "Classes that are asked about, separated by commas; empty for all (on=objects)")
    min_size = option(int, 32, "Least side of an object in pixels (on=objects)", minimum=1)
    ask_again = option(float, 0.0, "Seconds after which an object is asked about again; 0 for never (on=objects)", minimum=0)
    only_on = option(str, "", "Ask only where this holds on a frame: person>=2, car[parked], age(person)>5, and, or, not")
    cooldown = option(float, 0.0, "Seconds without a question after one of a stream that only-on let through", minimum=0)
    max_inflight = option(int, 4, "Most questions asked at once", minimum=1, maximum=256)
    queue_size = option(int, 16, "Most questions that wait", minimum=1)
    on_full = option(
        str,
        "drop-oldest",
        "When so many wait: drop the oldest of the busiest stream, drop the new one, or hold the stream",
        choices=("drop-oldest", "drop-newest", "wait"),
        mutable=True,
    )
    timeout = option(float, 30.0, "Seconds from the end of a segment until its answer counts no longer", minimum=0.05)
    retries = option(int, 3, "How often a question is asked again after a fault that may pass", minimum=0)
    backoff = option(float, 0.5, "Seconds before it is asked again; doubled each time", minimum=0)
    drain_timeout = option(float, 10.0, "Seconds that the stream's end waits for answers", minimum=0, mutable=True)
    max_tokens = option(int, 256, "Most tokens of an answer", minimum=1)
    temperature = option(float, 0.0, "Temperature of sampling; 0 for the likeliest words", minimum=0)
    send = option(
        str, "images", "How a server gets frames: JPEG images, or one video of JPEGs (vLLM)", choices=("images", "video")
    )
    jpeg_quality = option(int, 85, "Quality of the JPEGs", minimum=1, maximum=100)
    hold = option(
        str,
        "auto",
        "Keep the newest frame back until the next one, so that the last answers have a frame to go on: auto where a "
        "file is read (not live, of known length) and the memory is not DeepStream's",
        choices=("auto", "no"),
    )
    unique_id = option(int, 17, "Number of this element in the metadata", minimum=1)
    stream_id = option(str, "", "Name of the stream; empty for the one it has")
    write_meta = option(
        str,
        "auto",
        "Metadata for other elements beside our own: auto, none (carrier), GstAnalytics or regions of interest",
        choices=("auto", "carrier", "analytics", "roi"),
    )

    def plan(self) -> SamplingPlan:
        """How frames are sampled.

        Raises:
            ConfigError: The overlap is as long as the segment.
        """
        if self.overlap >= self.segment:
            raise ConfigError(f"overlap={self.overlap:g} must be less than segment={self.segment:g}")
        return SamplingPlan(
            round(self.segment * 1e9),
            round(self.overlap * 1e9),
            round(1e9 / self.fps),
            self.every,
            self.scene,
            self.max_frames,
        )
