-- Cancel. The changes themselves are lane/end_queued and lane/ask_stop, which replace and settle share.

-- name: read
-- In a later statement than the lane's lock.
SELECT key, id, state, children, cancel_at FROM slipway.tasks WHERE key = @task;
