"""activity-core: recurring and event-driven work, exactly once in effect, with a record of why."""
