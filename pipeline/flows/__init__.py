"""What happens to a document (flows/ingest.py) and to a question (flows/answer.py), in reading order. Start here.

Each function is the work of one kind of step: it reads what the steps before wrote, does its part through the
ports, and returns what the ledger keeps as the step's output (ids and offsets, never text). `jobs.advance` says what
follows. Running one twice changes nothing, for its outputs are named by their content.
"""
