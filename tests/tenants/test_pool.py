"""The pool of connections after an outage: nobody waits as long again."""

import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from threading import Barrier

from django.db import OperationalError, connection

from tests.gateway.test_doors import database_away

NUM_LOST = 10
REST_S = 6.0  # of the outage, after all have asked in vain for 10 s: the try after that of 15 s would come at 31
LONGEST_S = 4.0


def test_a_database_that_is_back_is_used_soon(transactional_db: None) -> None:
    together = Barrier(NUM_LOST)

    def ask(*, hold: bool) -> None:
        with suppress(OperationalError), connection.cursor() as cursor:
            cursor.execute("SELECT 1")
            if hold:
                together.wait()
        connection.close()

    with ThreadPoolExecutor(NUM_LOST) as crowd:
        list(crowd.map(lambda _: ask(hold=True), range(NUM_LOST)))
        with database_away():
            list(crowd.map(lambda _: ask(hold=False), range(NUM_LOST)))
            time.sleep(REST_S)
    began = time.monotonic()
    with connection.cursor() as cursor:
        cursor.execute("SELECT 1")
    assert time.monotonic() - began < LONGEST_S
