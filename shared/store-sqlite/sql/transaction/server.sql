-- The version of the linked SQLite library.
SELECT sqlite_version();
