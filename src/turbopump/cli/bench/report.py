"""The measurements of a load: as JSON, as lines, as a picture.

Owns the formats. It must never run a load.
"""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from turbopump.cli.bench.plan import Plan
from turbopump.cli.errors import CommandFailed, UserError
from turbopump.net.wire.codes import ResponseCode
from turbopump.pyx import load as native
from turbopump.pyx.load import Load

SHARES = {"p50": 0.5, "p90": 0.9, "p99": 0.99, "p99.9": 0.999, "p99.99": 0.9999}
"""Percentiles of the report as fractions, by name."""
NAMES = {native.SEND: "producer", native.PULL: "consumer"}
"""Name of a section in the JSON result, by kind."""
NO_CODES = {
    native.CODE_UNANSWERED: "unanswered",
    native.CODE_LOST: "connection lost",
    native.CODE_MALFORMED: "malformed",
}
"""Names of errors without a response code."""


def code_name(code: int) -> str:
    """Return the name of an error in the JSON result: the response code's number as text, or one of
    NO_CODES."""
    return NO_CODES.get(code, str(code))


@dataclass(frozen=True)
class Section:
    """The measurements of all senders of a load, or of all pullers."""

    messages: int
    """Messages in the measured time, without warm-up."""
    all_messages: int
    """Messages of the whole load, warm-up included."""
    requests: int
    """Requests with a response in the measured time."""
    bytes: int
    """Bytes of messages in the measured time."""
    duration_s: float
    """The measured time."""
    errors: dict[str, int]
    """Number of failed requests by `code_name`."""
    remarks: dict[str, str]
    """A broker's text about an error, by `code_name`."""
    latency_us: dict[str, float]
    """Time from request to response in us: SHARES and "max"."""
    delivery_us: dict[str, float]
    """Time from creation to delivery in us: SHARES; empty unless new messages were pulled."""
    series: list[dict[str, float]]
    """Rows for each whole second of the load: messages, p50_us, p99_us and max_us."""

    @classmethod
    def from_load(cls, load: Load, kind: int, follow: bool) -> "Section":
        """Collect the measurements of `kind` (native.SEND or native.PULL) from a finished load;
        `follow` as in Plan."""
        found = load.counters(kind)
        rows = [row[kind] for row in load.rows()]
        latency = {name: load.latency(kind, share) / 1000 for name, share in SHARES.items()}
        with_delivery = follow and kind == native.PULL
        return cls(
            messages=found["messages"],
            all_messages=found["all_messages"],
            requests=found["requests"],
            bytes=found["bytes"],
            duration_s=load.measured_ns / 1e9,
            errors={code_name(code): count for code, count, _ in found["errors"]},
            remarks={
                code_name(code): remark.decode("utf-8", "replace")
                for code, _, remark in found["errors"]
                if remark
            },
            latency_us={**latency, "max": load.latency_max(kind) / 1000},
            delivery_us=(
                {name: load.delivery(share) / 1000 for name, share in SHARES.items()}
                if with_delivery
                else {}
            ),
            series=[
                {
                    "messages": messages,
                    "p50_us": p50 / 1000,
                    "p99_us": p99 / 1000,
                    "max_us": most / 1000,
                }
                for messages, p50, p99, most in rows
            ],
        )

    @property
    def messages_per_s(self) -> float:
        """Messages per second of the measured time; 0 if that is empty."""
        return self.messages / self.duration_s if self.duration_s else 0.0

    def to_json(self) -> dict[str, Any]:
        """Return the measurements as a member of the JSON result."""
        made: dict[str, Any] = {
            "messages": self.messages,
            "all_messages": self.all_messages,
            "requests": self.requests,
            "bytes": self.bytes,
            "errors": self.errors,
            "error_texts": self.remarks,
            "duration_s": self.duration_s,
            "messages_per_s": self.messages_per_s,
            "latency_us": self.latency_us,
        }
        if self.delivery_us:
            made["delivery_us"] = self.delivery_us
        return {**made, "series": self.series}

    def lines(self, name: str) -> list[str]:
        """Return the measurements as lines for people, the first one beginning with `name`."""
        speed = self.bytes / self.duration_s / (1 << 20) if self.duration_s else 0.0
        shown = [
            f"{name}: {self.messages:,} messages in {self.duration_s:.2f} s,"
            f" {self.messages_per_s:,.0f} a second, {speed:,.1f} MiB/s",
            f"  latency   {_percentiles_text(self.latency_us)}",
        ]
        if self.delivery_us:
            shown.append(f"  delivery  {_percentiles_text(self.delivery_us)}")
        for code, count in self.errors.items():
            text = f": {self.remarks[code]}" if code in self.remarks else ""
            shown.append(f"  {count:,} times {_code_text(code)}{text}")
        return shown


def _percentiles_text(values: dict[str, float]) -> str:
    return "  ".join(f"{name} {_time_text(value)}" for name, value in values.items())


def _time_text(us: float) -> str:
    return f"{us:,.0f} us" if us < 10_000 else f"{us / 1000:,.1f} ms"


def _code_text(code: str) -> str:
    """A response code's number as text, followed by its name if that is known."""
    known = {str(member.value): member.name for member in ResponseCode}
    return f"{code} {known[code]}" if code in known else code


@dataclass(frozen=True)
class Outage:
    """The effect of a failover on a load.

    `at_s` is the time of the first failed send, in s from the start of the load; `gap_ms` the
    longest time without an acknowledgement in the failover; `resumed_ms` the time from the first
    failure to the first acknowledgement on a connection that had failed, None if there was none.
    """

    at_s: float
    gap_ms: float
    failed_sends: int
    resumed_ms: float | None

    @classmethod
    def from_figures(cls, began_ns: int, resumed_ns: int, gap_ns: int, failed: int) -> "Outage":
        """Convert a tuple of `Load.outages`: ns since the start of the load, `resumed_ns` negative
        if no send was acknowledged again, and the number of failed sends."""
        resumed_ms = (resumed_ns - began_ns) / 1e6 if resumed_ns >= 0 else None
        return cls(began_ns / 1e9, gap_ns / 1e6, failed, resumed_ms)

    def to_json(self) -> dict[str, float | None]:
        """Return the figures as a member of the JSON result."""
        return {
            "at_s": self.at_s,
            "gap_ms": self.gap_ms,
            "failed_sends": self.failed_sends,
            "resumed_ms": self.resumed_ms,
        }

    def line(self) -> str:
        """Return the outage as a line for people."""
        again = "not acknowledged again"
        if self.resumed_ms is not None:
            again = f"acknowledged again {self.resumed_ms:,.0f} ms after the first of them"
        return (
            f"failover at {self.at_s:.1f} s: no acknowledgement for {self.gap_ms:,.0f} ms, "
            f"{self.failed_sends:,} sends failed, {again}"
        )


@dataclass(frozen=True)
class LoadReport:
    """The measurements of a finished load, of its sends and pulls, failovers, and lost
    connections."""

    plan: Plan
    sections: dict[int, Section]
    """Figures by native.SEND and native.PULL; a kind that did not run is missing."""
    connections: int
    """Number of connections of the load."""
    connections_lost: int
    """Number of losses of a connection, also if it was replaced."""
    queues_unread: int
    """Queues whose pulls failed before their end."""
    unsent: int
    """Requests that were due by the rate and never had room to be sent."""
    generator_cpu_s: float
    """CPU time of the load's thread."""
    is_late: bool
    """Whether the load ended while requests were unanswered."""
    is_lost: bool
    """Whether the load ended because no connection was left."""
    outages: list[Outage] = field(default_factory=list)

    def to_json(self) -> dict[str, Any]:
        """Return the JSON result: flat for one kind, with a member for each (NAMES) if both ran."""
        common = {
            "workload": self.plan.describe_as_json(),
            "connections": self.connections,
            "connections_lost": self.connections_lost,
            "unsent": self.unsent,
            "generator_cpu_s": self.generator_cpu_s,
            "outages": [outage.to_json() for outage in self.outages],
        }
        parts = {NAMES[kind]: section.to_json() for kind, section in self.sections.items()}
        if len(parts) == 1:
            return {**common, **next(iter(parts.values()))}
        return {**common, **parts}

    def lines(self) -> list[str]:
        """Return the result as lines for people."""
        shown: list[str] = []
        for kind, section in self.sections.items():
            shown += section.lines(NAMES[kind])
        if self.unsent:
            shown.append(f"{self.unsent:,} requests were due and never had room to be sent")
        shown += [outage.line() for outage in self.outages]
        cpu = self.generator_cpu_s
        return [*shown, f"load generator: {cpu:.2f} s of CPU, {self.connections} connections"]

    def check_measured(self) -> None:
        """Raise CommandFailed if the load did not measure the plan."""
        counted = sum(section.all_messages for section in self.sections.values())
        lost = f"{self.connections_lost} of {self.connections} connections"
        if self.is_lost:
            raise CommandFailed(f"the broker closed {lost}, after {counted} messages")
        for section in self.sections.values():
            if section.errors and not section.all_messages:
                code = max(section.errors, key=lambda it: section.errors[it])
                text = section.remarks.get(code, "")
                raise CommandFailed(f"nothing but errors, {_code_text(code)}: {text}".rstrip(": "))
        if self.queues_unread:
            raise CommandFailed(f"{self.queues_unread} queues could not be read to their end")
        if self.is_late:
            raise CommandFailed("the last messages were not answered or not delivered in time")


def draw_plot(report: LoadReport, path: Path) -> None:
    """Draw throughput and latency over time, and the percentiles, into a PNG file, which is
    replaced. Raises UserError without matplotlib, OSError."""
    try:
        import matplotlib
    except ImportError:
        raise UserError("--plot needs matplotlib: pip install 'matplotlib>=3.8'") from None
    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, (speed, latency, shares) = pyplot.subplots(1, 3, figsize=(15, 4.5))
    for kind, section in report.sections.items():
        seconds = range(1, len(section.series) + 1)
        name = NAMES[kind]
        speed.plot(seconds, [row["messages"] for row in section.series], label=name)
        for key in ("p50", "p99"):
            values = [row[f"{key}_us"] for row in section.series]
            latency.plot(seconds, values, label=f"{name} {key}")
        shares.plot(list(section.latency_us), list(section.latency_us.values()), "o-", label=name)
    speed.set(title="messages a second", xlabel="second", ylim=(0, None))
    latency.set(title="latency, us", xlabel="second", yscale="log")
    shares.set(title="latency of all requests, us", yscale="log")
    for part in (speed, latency, shares):
        part.grid(alpha=0.3)
        part.legend()
    figure.tight_layout()
    figure.savefig(path, format="png", dpi=110)
    pyplot.close(figure)
