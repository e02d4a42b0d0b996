-- A send of three rounds with two calls: user, call and result twice, answer: four transactions.
\set s random(1, 100000)
with u as (update c_sessions set next_seq = next_seq + 6, updated_at = now() where id = :s returning next_seq - 6 as seq), m as (insert into c_messages (session_id, seq, role, content) select :s, seq, 'user', repeat('u', 110) from u) insert into c_sends (session_id, status, seq) select :s, 'running', seq from u returning id as send, seq as seq \gset
insert into c_messages (session_id, seq, role, content) values (:s, :seq + 1, 'assistant', repeat('c', 80)), (:s, :seq + 2, 'tool', 'ok');
insert into c_messages (session_id, seq, role, content) values (:s, :seq + 3, 'assistant', repeat('c', 80)), (:s, :seq + 4, 'tool', 'ok');
with m as (insert into c_messages (session_id, seq, role, content) values (:s, :seq + 5, 'assistant', repeat('a', 200))) update c_sends set status = 'done', done_at = now() where id = :send;
