#!/bin/sh
# Makes a database cluster in $PGDATA where there is none, then becomes the server. The first start is done in one step:
# what was begun and not ended is begun again.
set -eu
umask 077
if [ ! -s "$PGDATA/PG_VERSION" ]; then
	if [ -z "${POSTGRES_PASSWORD:-}" ]; then
		echo "postgres: set POSTGRES_PASSWORD for the first start" >&2
		exit 1
	fi
	rm -rf "$PGDATA.new"
	printf '%s\n' "$POSTGRES_PASSWORD" >/tmp/password
	initdb --pgdata="$PGDATA.new" --username=postgres --pwfile=/tmp/password --encoding=UTF8 --locale=C.UTF-8 \
		--auth-local=trust --auth-host=scram-sha-256 --data-checksums
	rm -f /tmp/password
	echo "host all all all scram-sha-256" >>"$PGDATA.new/pg_hba.conf"
	mv "$PGDATA.new" "$PGDATA"
fi
# A volume with a group of its own may have widened it; the server insists.
chmod 0700 "$PGDATA"
unset POSTGRES_PASSWORD
exec postgres -D "$PGDATA" -c listen_addresses='*' -c unix_socket_directories=/var/run/postgresql -c jit=off \
	-c logging_collector=off -c log_destination=stderr "$@"
