-- The version of the library that is linked in.
SELECT sqlite_version();
