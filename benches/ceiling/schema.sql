-- The least schema that a one-round send can be kept in: what the throughput is compared with.
create table c_sessions (
    id         bigint      primary key,
    next_seq   bigint      not null default 1,
    updated_at timestamptz not null default now()
);
create table c_messages (
    session_id bigint      not null,
    seq        bigint      not null,
    role       text        not null,
    content    text        not null,
    created_at timestamptz not null default now(),
    primary key (session_id, seq)
);
create table c_sends (
    id         bigserial   primary key,
    session_id bigint      not null,
    status     text        not null,
    seq        bigint      not null,
    created_at timestamptz not null default now(),
    done_at    timestamptz
);
insert into c_sessions (id) select generate_series(1, 100000);
