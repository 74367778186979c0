"""What all processes stand on: time, weather, the broker and the network."""

from dataclasses import dataclass

from tests.simulation.broker import Broker
from tests.simulation.network import Network
from tests.simulation.timeline import Timeline
from tests.simulation.weather import Weather


@dataclass(frozen=True)
class Ground:
    """One world's ground."""

    timeline: Timeline
    weather: Weather
    broker: Broker
    network: Network


def a_ground(weather: Weather) -> Ground:
    """Return new ground at time zero."""
    timeline = Timeline()
    broker = Broker(timeline, weather)
    return Ground(timeline, weather, broker, Network(timeline, weather, lambda: broker.up))
