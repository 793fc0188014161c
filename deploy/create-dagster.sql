-- Beside the ledger's database: Dagster's history. Run once, when the server's volume is made.
CREATE DATABASE dagster;
