"""Environment of Alembic: runs the migrations on the store's connection, inside the store's transaction."""

from alembic import context

from pdp.store.schema import VERSION_TABLE

context.configure(connection=context.config.attributes["connection"], version_table=VERSION_TABLE)
context.run_migrations()
