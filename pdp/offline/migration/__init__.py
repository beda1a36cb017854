"""Migration: policies of Nessie, Lakekeeper and OpenFGA as files of this service, with a report and policy tests.

Each reader returns a `Migration`. Writes no file.
"""
