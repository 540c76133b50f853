"""A Celery application with an empty task.

Late acks, because with Celery's default a task is lost if its worker is killed; the other systems
run it again.
"""

import os

from celery import Celery

app = Celery("bench", broker=os.environ["REDIS_URL"])
app.conf.update(task_acks_late=True, task_ignore_result=True, worker_hijack_root_logger=False)


@app.task
def empty() -> None:
    pass
