"""Events reach those who listen for their type, whatever the other listeners do."""

import threading

import pytest

from subagent_cli.core.errors import Refused
from subagent_cli.dispatch import EventBus, ToolInvoked


class Other(ToolInvoked):
    pass


def deaf(event: object) -> None:
    raise ValueError(f"deaf to {event}")


def test_an_event_reaches_all_listeners_in_the_order_in_which_they_came() -> None:
    bus, heard = EventBus(), []
    bus.subscribe(ToolInvoked, lambda event: heard.append(("first", event.name)))
    bus.subscribe(ToolInvoked, lambda event: heard.append(("second", event.name)))
    assert bus.publish(ToolInvoked("bash")) == ()
    assert heard == [("first", "bash"), ("second", "bash")]


def test_only_events_of_exactly_the_type_are_heard() -> None:
    bus, heard = EventBus(), list[object]()
    bus.subscribe(ToolInvoked, heard.append)
    bus.publish(Other("bash"))
    bus.publish("bash")
    assert heard == []


def test_a_listener_that_raises_keeps_nobody_from_hearing_it_and_the_publisher_learns_of_it() -> None:
    bus, heard = EventBus(), list[object]()
    for handler in (deaf, heard.append, deaf):
        bus.subscribe(ToolInvoked, handler)
    faults = bus.publish(ToolInvoked("bash"))
    assert heard == [ToolInvoked("bash")]
    assert [type(fault) for fault in faults] == [ValueError, ValueError]


def test_an_interrupt_is_not_swallowed() -> None:
    def interrupt(_: ToolInvoked) -> None:
        raise KeyboardInterrupt

    bus = EventBus()
    bus.subscribe(ToolInvoked, interrupt)
    with pytest.raises(KeyboardInterrupt):
        bus.publish(ToolInvoked("bash"))


def test_who_has_unsubscribed_hears_nothing_more() -> None:
    bus, heard = EventBus(), list[object]()
    bus.subscribe(ToolInvoked, heard.append)
    bus.subscribe(ToolInvoked, heard.append)
    bus.unsubscribe(ToolInvoked, heard.append)
    assert bus.listeners() == 1
    bus.publish(ToolInvoked("bash"))
    assert heard == [ToolInvoked("bash")]
    bus.unsubscribe(ToolInvoked, heard.append)
    assert bus.listeners() == 0
    assert bus.publish(ToolInvoked("bash")) == ()


def test_taking_away_who_is_not_there_is_no_fault() -> None:
    bus = EventBus()
    bus.unsubscribe(ToolInvoked, deaf)
    assert bus.listeners() == 0


def test_a_listener_may_publish_and_unsubscribe_itself() -> None:
    bus, heard = EventBus(), list[object]()

    def once(event: ToolInvoked) -> None:
        bus.unsubscribe(ToolInvoked, once)
        heard.append(event)
        bus.publish(ToolInvoked("second"))

    bus.subscribe(ToolInvoked, once)
    bus.subscribe(ToolInvoked, heard.append)
    bus.publish(ToolInvoked("first"))
    assert heard == [ToolInvoked("first"), ToolInvoked("second"), ToolInvoked("first")]


@pytest.mark.case("C4-23")
def test_a_closed_bus_is_silent_and_takes_no_listener() -> None:
    bus, heard = EventBus(), list[object]()
    bus.subscribe(ToolInvoked, heard.append)
    bus.close()
    bus.close()
    assert (bus.publish(ToolInvoked("bash")), heard, bus.listeners()) == ((), [], 0)
    bus.unsubscribe(ToolInvoked, heard.append)
    with pytest.raises(Refused) as caught:
        bus.subscribe(ToolInvoked, heard.append)
    assert (caught.value.code, bus.listeners()) == ("bus_closed", 0)


def test_threads_may_come_and_go_while_others_publish() -> None:
    bus, faults = EventBus(), list[Exception]()

    def come_and_go() -> None:
        for _ in range(200):
            heard = list[object]()
            bus.subscribe(ToolInvoked, heard.append)
            faults.extend(bus.publish(ToolInvoked("bash")))
            bus.unsubscribe(ToolInvoked, heard.append)

    threads = [threading.Thread(target=come_and_go) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (faults, bus.listeners()) == ([], 0)
