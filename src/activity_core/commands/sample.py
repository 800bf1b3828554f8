"""The definition that `activity-core init` writes, which is also `examples/heartbeat.yaml`."""

FILE_NAME = "heartbeat.yaml"

HEARTBEAT = """\
# A heartbeat: once a minute, one run with one task, which the worker writes to its log.
api_version: activity-core/v1
kind: Activity

# What this activity is called in commands, URLs and lists. It never changes; the name may.
slug: heartbeat
name: Heartbeat
description: Shows that the service is alive.

trigger:
  type: cron
  # Minute, hour, day of month, month, day of week: here every minute.
  cron: "* * * * *"
  # Cron times are local times, so the zone belongs to them. For example Europe/Berlin.
  timezone: UTC
  # A minute that nothing could start within misfire_grace_seconds (while the service was off, say) is left out, and its
  # row in the ledger says so. Ask for it with: activity-core why heartbeat
  misfire_policy: skip
  misfire_grace_seconds: 60

tasks:
  - task_type: beat
    # Where the task goes. `log` and `inbox` (for a person to complete) are built in; others are `kind: Consumer`.
    consumer: log
    params:
      # ${ … } holds an expression. It may use activity, run, scheduled_for (the minute that the run is for, not the
      # instant at which it started; in a run that you trigger by hand, when you did) and more.
      text: "${ activity.name } of ${ scheduled_for }"
"""
