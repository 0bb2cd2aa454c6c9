#!/bin/sh
# Makes a folder that runs on any Linux of the same processor and libc, with
# nothing installed: the program in usr/bin, the native libraries in usr/lib, and
# AppRun, which AppImage's tool and a click start.
#
#	bundle.sh PROGRAM "$(go run ./native -dir)" FOLDER
#
# docs/embedding.md says what comes next.
set -eu
[ $# -eq 3 ] || { echo "usage: bundle.sh PROGRAM LIBMLXC FOLDER" >&2; exit 2; }
program=$1 library=$2 folder=$3
[ -x "$program" ] || { echo "bundle.sh: $program is no program" >&2; exit 1; }
libraries=$(dirname "$(dirname "$(dirname "$library")")")
[ -f "$library" ] && [ -f "$libraries/mlx/lib/libmlxc.so" ] || { echo "bundle.sh: $library is no libmlxc.so where the installer puts it" >&2; exit 1; }
[ ! -e "$folder" ] || { echo "bundle.sh: $folder is there already" >&2; exit 1; }

mkdir -p "$folder/usr/bin" "$folder/usr/lib"
cp "$program" "$folder/usr/bin/"
# Libraries find each other by their relative places, which therefore stay.
cp -R "$libraries/mlx" "$folder/usr/lib/mlx"
for libs in "$libraries"/*.libs; do
	[ ! -d "$libs" ] || cp -R "$libs" "$folder/usr/lib/"
done
cp "$libraries"/LICENSE.* "$folder/usr/lib/"
name=$(basename "$program")
cat >"$folder/AppRun" <<RUN
#!/bin/sh
here=\$(cd "\$(dirname "\$(readlink -f "\$0")")" && pwd)
export MLXC_LIBRARY="\$here/usr/lib/mlx/lib/libmlxc.so"
exec "\$here/usr/bin/$name" "\$@"
RUN
chmod +x "$folder/AppRun"
