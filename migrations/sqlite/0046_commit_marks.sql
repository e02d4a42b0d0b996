-- Nothing: only on MySQL and MariaDB a transaction leaves a mark by which it is known to be committed.
SELECT 1;
