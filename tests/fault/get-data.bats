# SPDX-License-Identifier: Apache-2.0
# contrib/ddp-get-data with a server on this machine. Every file that it leaves must be complete and
# correct.
#
# shellcheck disable=SC2154 # status, output and lines come from run

setup_file()
{
	GET=$(cd "$BATS_TEST_DIRNAME/../.." && pwd)/contrib/ddp-get-data
	SERVED=$(mktemp -d "${TMPDIR:-/tmp}/ddp-served.XXXXXX")
	export GET SERVED
	unset http_proxy HTTP_PROXY all_proxy ALL_PROXY
	mkdir "$SERVED/files"
	for name in one two; do
		head -c 300000 /dev/urandom | gzip >"$SERVED/files/$name.gz"
	done
	mkdir "$SERVED/pictures"
	head -c 100000 /dev/urandom | tee "$SERVED/pictures/first" >"$SERVED/pictures/second"
	tar -C "$SERVED" -czf "$SERVED/files/pictures-binary.tar.gz" pictures
	(cd "$SERVED/files" && sha256sum one.gz two.gz) >"$SERVED/sums"
	: >"$SERVED/log"
	/usr/bin/python3 -u -m http.server --bind 127.0.0.1 --directory "$SERVED/files" 0 \
		>>"$SERVED/log" 2>&1 3>&- &
	echo $! >"$SERVED/pid"
	for _ in {1..1200}; do
		PORT=$(sed -n 's/.* port \([0-9]*\) .*/\1/p' "$SERVED/log")
		[ -n "$PORT" ] && break
		sleep 0.05
	done
	[ -n "$PORT" ]
	export URL=http://127.0.0.1:$PORT
}

teardown_file()
{
	kill "$(cat "$SERVED/pid")" 2>/dev/null
	rm -rf "$SERVED"
}

setup()
{
	DIR=$(mktemp -d "${TMPDIR:-/tmp}/ddp-get.XXXXXX")
	: >"$SERVED/log"
}

teardown()
{
	rm -rf "$DIR"
}

get()
{
	"$GET" --url "$URL" --sums "$SERVED/sums" mnist "$@"
}

# sent FILE: prints how many times the server has sent FILE.
sent()
{
	grep -c "\"GET /$1 HTTP[^\"]*\" 20[06]" "$SERVED/log"
}

# whole DIRECTORY: checks that the directory has both files, complete and unpacked, and no others.
whole()
{
	[ "$(ls -A "$1")" = "$(printf 'one\none.gz\ntwo\ntwo.gz')" ]
	for name in one two; do
		cmp "$SERVED/files/$name.gz" "$1/$name.gz"
		zcat "$1/$name.gz" | cmp - "$1/$name"
	done
}

@test "all files are fetched into a directory that is created" {
	run get "$DIR/new/place"
	[ "$status" -eq 0 ]
	[ "${lines[0]}" = "one.gz: downloaded, $(stat -c %s "$SERVED/files/one.gz") bytes, checksum verified" ]
	[ "${lines[2]}" = "mnist is in $DIR/new/place: ddp-train mnist --data $DIR/new/place" ]
	whole "$DIR/new/place"
}

@test "an existing file is not fetched again" {
	cp "$SERVED/files/one.gz" "$DIR"
	run get "$DIR"
	[ "$status" -eq 0 ]
	[ "${lines[0]}" = "one.gz: already valid" ]
	[ "$(sent one.gz)" -eq 0 ]
	[ "$(sent two.gz)" -eq 1 ]
	whole "$DIR"
}

@test "an archive is unpacked, and unpacked again after an interruption" {
	(cd "$SERVED/files" && sha256sum pictures-binary.tar.gz) >"$SERVED/archive"
	mkdir "$DIR/pictures.part"
	head -c 50 /dev/urandom >"$DIR/pictures.part/first"
	run "$GET" --url "$URL" --sums "$SERVED/archive" cifar10 "$DIR"
	[ "$status" -eq 0 ]
	[ "$(ls -A "$DIR")" = "$(printf 'pictures\npictures-binary.tar.gz')" ]
	diff -r "$SERVED/pictures" "$DIR/pictures"
}

@test "an unpacked file that a training may be reading is not written again" {
	get "$DIR"
	before=$(stat -c '%i %Y' "$DIR/one")
	rm "$DIR/two"
	run get "$DIR"
	[ "$status" -eq 0 ]
	[ "$(stat -c '%i %Y' "$DIR/one")" = "$before" ]
	whole "$DIR"
	[ "$(sent two.gz)" -eq 1 ]
}

@test "a partly fetched file is completed, whether or not the server can continue it" {
	head -c 100000 "$SERVED/files/one.gz" >"$DIR/one.gz.part"
	cp "$SERVED/files/two.gz" "$DIR/two.gz.part"
	run get "$DIR"
	[ "$status" -eq 0 ]
	whole "$DIR"
	[ "$(sent two.gz)" -eq 0 ]
}

@test "a part with wrong content or length is fetched again" {
	head -c 100000 /dev/urandom >"$DIR/one.gz.part"
	head -c 400000 /dev/urandom >"$DIR/two.gz.part"
	run get "$DIR"
	[ "$status" -eq 0 ]
	whole "$DIR"
}

@test "a file with a wrong checksum is removed" {
	sed 's/^....../000000/' "$SERVED/sums" >"$DIR/../${DIR##*/}.sums"
	run "$GET" --url "$URL" --sums "$DIR/../${DIR##*/}.sums" mnist "$DIR"
	rm "$DIR/../${DIR##*/}.sums"
	[ "$status" -eq 1 ]
	[[ $output == *"$URL/one.gz has SHA-256 $(sha256sum <"$SERVED/files/one.gz" | cut -c 1-64), expected 000000"* ]]
	[ -z "$(ls -A "$DIR")" ]
}

@test "--sums takes lines of sha256sum -b, CR LF, and a last line without a newline" {
	(cd "$SERVED/files" && sha256sum -b one.gz two.gz) | sed 's/$/\r/' | head -c -2 >"$SERVED/windows"
	run "$GET" --url "$URL" --sums "$SERVED/windows" mnist "$DIR"
	[ "$status" -eq 0 ]
	whole "$DIR"
}

@test "an existing file with another checksum is not changed" {
	echo mine >"$DIR/one.gz"
	run get "$DIR"
	[ "$status" -eq 1 ]
	[[ $output == "ddp-get-data: $DIR/one.gz exists with SHA-256 "*"remove it to download it again" ]]
	[ "$(cat "$DIR/one.gz")" = mine ]
}

@test "a file is written through a link, and a FIFO in its place is refused" {
	mkdir "$DIR/to"
	ln -s to/first.gz "$DIR/one.gz"
	mkfifo "$DIR/two.gz"
	run timeout 60 "$GET" --url "$URL" --sums "$SERVED/sums" mnist "$DIR"
	[ "$status" -eq 1 ]
	[ "${lines[1]}" = "ddp-get-data: $DIR/two.gz is not a file" ]
	[ -L "$DIR/one.gz" ]
	zcat "$DIR/to/first.gz" | cmp - "$DIR/one"
	cmp "$DIR/to/first.gz" "$SERVED/files/one.gz"
	[ -p "$DIR/two.gz" ]
}

@test "a file that the server lacks is named" {
	echo "$(printf '%064d' 1)  three.gz" >"$SERVED/three"
	run "$GET" --url "$URL" --sums "$SERVED/three" mnist "$DIR"
	[ "$status" -eq 1 ]
	[[ $output == *"cannot download $URL/three.gz"* ]]
	[ -z "$(ls -A "$DIR")" ]
}

@test "a server that does not answer is reported with a remedy" {
	run "$GET" --url http://127.0.0.1:1 --sums "$SERVED/sums" mnist "$DIR"
	[ "$status" -eq 1 ]
	[[ $output == *"cannot download http://127.0.0.1:1/one.gz (status "*"); run this again, or name a mirror with --url" ]]
	[ -z "$(ls -A "$DIR")" ]
}

@test "a directory in which this user cannot write is named" {
	chmod 555 "$DIR"
	chmod a+rX "$SERVED" "$SERVED/sums"
	user=()
	[ "$(id -u)" -ne 0 ] || user=(setpriv --reuid=nobody --regid=nogroup --clear-groups)
	# The user may be unable to enter the source directory.
	install -m 755 "$GET" "$SERVED/ddp-get-data"
	run "${user[@]}" "$SERVED/ddp-get-data" --url "$URL" --sums "$SERVED/sums" mnist "$DIR"
	chmod 755 "$DIR"
	[ "$status" -eq 1 ]
	[ "$output" = "ddp-get-data: cannot write in $DIR" ]
}

@test "a part is kept if the network fails while it is continued" {
	head -c 100000 "$SERVED/files/one.gz" >"$DIR/one.gz.part"
	run "$GET" --url http://127.0.0.1:1 --sums "$SERVED/sums" mnist "$DIR"
	[ "$status" -eq 1 ]
	[[ $output == *"the received part is kept in $DIR/one.gz.part, run this again to continue"* ]]
	[ "$(stat -c %s "$DIR/one.gz.part")" -eq 100000 ]
	run get "$DIR"
	[ "$status" -eq 0 ]
	whole "$DIR"
}

@test "wget is used if there is no curl" {
	type -P wget >/dev/null || skip "no wget here"
	mkdir "$DIR/bin" "$DIR/data"
	for tool in wget sha256sum mv mkdir flock stat cat rm gzip bash; do
		ln -s "$(type -P "$tool")" "$DIR/bin/$tool"
	done
	head -c 100000 "$SERVED/files/one.gz" >"$DIR/data/one.gz.part"
	run env PATH="$DIR/bin" "$GET" --url "$URL" --sums "$SERVED/sums" mnist "$DIR/data"
	[ "$status" -eq 0 ]
	whole "$DIR/data"
	rm "$DIR/bin/wget"
	run env PATH="$DIR/bin" "$GET" mnist "$DIR/data"
	[ "$status" -eq 1 ]
	[ "$output" = "ddp-get-data: needs curl or wget: install one of them" ]
}

@test "two ddp-get-data at the same time fetch each file once" {
	get "$DIR" >"$SERVED/first" 3>&- &
	run get "$DIR"
	wait $!
	[ "$status" -eq 0 ]
	whole "$DIR"
	[ "$(sent one.gz)" -eq 1 ]
	[ "$(sent two.gz)" -eq 1 ]
}

@test "wrong arguments are an error" {
	run "$GET"
	[ "$status" -eq 2 ]
	run "$GET" imagenet "$DIR"
	[ "$status" -eq 2 ]
	[[ $output == *"no set imagenet; choose of: mnist, cifar10, cifar100"* ]]
	run "$GET" --sum x mnist "$DIR"
	[ "$status" -eq 2 ]
	run "$GET" --url
	[ "$status" -eq 2 ]
	run "$GET" --help
	[ "$status" -eq 0 ]
	[[ ${lines[0]} == usage:* ]]
}

# The file names that ddp-train looks for, each with a checksum.
@test "the table has the published names" {
	run /bin/bash -c 'source <(sed "\$d" "$GET"); for s in mnist cifar10 cifar100; do sums_of $s; done'
	[ "${#lines[@]}" -eq 6 ]
	for line in "${lines[@]}"; do
		[[ $line =~ ^[0-9a-f]{64}\ \ [a-z0-9-]+(\.tar)?\.gz$ ]]
	done
}
