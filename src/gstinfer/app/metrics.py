"""Counters of a running session for Prometheus."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from gstinfer.app.control import address
from gstinfer.errors import ConfigError, MissingDependencyError

if TYPE_CHECKING:
    from gstinfer.app.running import Running

__all__ = ["MetricsServer"]

STATES = ("ready", "connecting", "playing", "stalled", "failed", "ended")

COUNTERS = {
    "frames": "Frames that came out of a stream.",
    "inferred": "Frames that the model saw.",
    "objects": "Objects found.",
    "skipped": "Late frames that went on without inference.",
    "dropped": "Frames left out.",
    "errors": "Frames on which the model failed.",
    "backward_pts": "Frames whose timestamp was not later than the one before.",
    "reconnects": "Connections made anew.",
}
GAUGES = {
    "fps": "Frames per second over the last seconds.",
    "lag": "Seconds between the source and the results, median of the last frames.",
    "lag_p95": "The same, 95th percentile.",
}


class _Collector:
    """Reads the session whenever Prometheus asks."""

    def __init__(self, session: Running) -> None:
        self.session = session

    def collect(self) -> Iterator[Any]:
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, InfoMetricFamily

        report = self.session.report()
        # Of two streams of one name the older has ended.
        streams = {stream["name"]: stream for stream in report["streams"]}
        for key, text in COUNTERS.items():
            counter = CounterMetricFamily(f"gstinfer_stream_{key}", text, labels=["stream"])
            for name, stream in streams.items():
                counter.add_metric([name], stream[key])
            yield counter
        for key, text in GAUGES.items():
            unit = "_seconds" if key.startswith("lag") else ""
            gauge = GaugeMetricFamily(f"gstinfer_stream_{key}{unit}", text, labels=["stream"])
            for name, stream in streams.items():
                if stream[key] is not None:
                    gauge.add_metric([name], stream[key])
            yield gauge
        state = GaugeMetricFamily("gstinfer_stream_state", "1 for the state a stream is in.", labels=["stream", "state"])
        for name, stream in streams.items():
            for value in STATES:
                state.add_metric([name, value], float(stream["state"] == value))
        yield state
        yield from self._steps(streams)
        yield InfoMetricFamily("gstinfer_model", "The model that runs.", value={"spec": report["model"]})

    def _steps(self, streams: dict[str, Any]) -> Iterator[Any]:
        """Seconds by step: those of a model once, since its streams share it; others per stream."""
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

        own = CounterMetricFamily("gstinfer_step_seconds", "Seconds spent in a step of a stream.", labels=["stream", "step"])
        # Each worker process has a model of its own on each of its devices.
        place = ["device", "worker"]
        text = "Seconds spent in a step of a shared model."
        shared = CounterMetricFamily("gstinfer_model_seconds", text, labels=[*place, "step"])
        batches = CounterMetricFamily("gstinfer_model_batches", "Batches that a model worked on.", labels=place)
        fill = GaugeMetricFamily("gstinfer_model_batch_fill", "Mean frames a batch.", labels=place)
        newest: dict[tuple[str, str], dict[str, Any]] = {}
        for name, stream in streams.items():
            for element, stats in stream["elements"].items():
                if element == "pyinfer" and stream["state"] in ("playing", "connecting", "stalled"):
                    newest[stream["device"], str(stream.get("worker", 1))] = stats
                for key, value in stats.items():
                    if key == "write-seconds" or (key.endswith("-seconds") and element != "pyinfer"):
                        own.add_metric([name, f"{element} {key.removesuffix('-seconds')}"], value)
        for where, stats in newest.items():
            for key, value in stats.items():
                if key.endswith("-seconds") and key != "write-seconds":
                    shared.add_metric([*where, key.removesuffix("-seconds")], value)
            batches.add_metric(where, stats.get("batches", 0))
            fill.add_metric(where, stats.get("batch-fill", 0))
        yield from (own, shared, batches, fill)


class MetricsServer:
    """Answers Prometheus until closed.

    Args:
        session: What is measured.
        where: ``:PORT`` for all interfaces, as Prometheus expects, or ``HOST:PORT``.

    Raises:
        MissingDependencyError: prometheus-client is not installed.
        ConfigError: The address cannot be used.
    """

    def __init__(self, session: Running, where: str) -> None:
        try:
            from prometheus_client import CollectorRegistry, start_http_server
        except ImportError as error:
            raise MissingDependencyError("prometheus-client", extra="metrics", purpose="--metrics") from error
        host, port = address(where, "0.0.0.0")
        registry = CollectorRegistry(auto_describe=False)
        registry.register(_Collector(session))
        try:
            self._server, self._thread = start_http_server(port, addr=host, registry=registry)
        except OSError as error:
            reason = error.strerror or str(error)
            raise ConfigError(f"--metrics {where} cannot be used: {reason}", hint="take another port") from error
        self.port = int(self._server.server_port)

    def close(self) -> None:
        """Stops listening."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
