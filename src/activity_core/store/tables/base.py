"""What every table is declared with."""

from sqlalchemy import Column, DateTime, MetaData, func

metadata = MetaData(
    naming_convention={
        "ix": "ix_%(table_name)s_%(column_0_N_name)s",
        "uq": "uq_%(table_name)s_%(column_0_N_name)s",
        "ck": "ck_%(table_name)s_%(constraint_name)s",
        "fk": "fk_%(table_name)s_%(column_0_N_name)s_%(referred_table_name)s",
        "pk": "pk_%(table_name)s",
    }
)


def instant(name: str, *, nullable: bool = False, now: bool = False) -> Column[object]:
    # clock_timestamp() and not now(): what is written after a lock was waited for must not carry the time before it
    default = func.clock_timestamp() if now else None
    return Column(name, DateTime(timezone=True), nullable=nullable, server_default=default)
