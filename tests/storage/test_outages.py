from __future__ import annotations

from clocks import Time, tries_until_given_up, waiting


def test_one_line_tells_that_waiting_begins_and_one_that_it_is_over(patient):
    time = Time()
    wait = waiting(time, "http://me:secret@host/a.tar?token=abc", seconds=50)
    for _ in range(5):
        wait.pause("the connection failed")
    wait.renew()
    assert patient.lines == [
        "http://***@host/a.tar?token=***: the connection failed; trying again for up to 50 s",
        f"http://***@host/a.tar?token=***: answers again after {sum(time.pauses):.1f} s",
    ]


def test_streams_that_wait_for_the_same_server_have_one_outage(patient):
    time = Time()
    waits = [waiting(time, f"http://host/{i}.tar", "host") for i in range(4)]
    other = waiting(time, "http://other/a.tar", "other")
    for wait in [*waits, *waits, other]:
        wait.pause("it failed")
    for wait in [*waits, other]:
        assert len(patient.over) == 0 or wait is other
        wait.renew()
    assert [line.split(":")[1] for line in patient.begun] == ["//host/0.tar", "//other/a.tar"]
    assert [line.split(":")[1] for line in patient.over] == ["//host/3.tar", "//other/a.tar"]


def test_who_gives_up_or_leaves_does_not_say_that_it_is_over(patient):
    gone, given_up, closed = (waiting(Time(), server=name, seconds=5) for name in "abc")
    for wait in (gone, given_up, closed):
        wait.pause("it failed")
    tries_until_given_up(given_up)
    closed.close()
    del gone, wait
    assert len(patient.begun) == 3
    assert patient.over == []
    for name in "abc":  # and the next outage is told of again
        waiting(Time(), server=name).pause("it failed")
    assert len(patient.begun) == 6
