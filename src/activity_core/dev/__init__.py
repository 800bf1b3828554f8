"""The whole stack on one machine: `activity-core dev`, and the servers that the tests run against."""

from activity_core.dev.supervisor import DevOptions, run_dev

__all__ = ["DevOptions", "run_dev"]
