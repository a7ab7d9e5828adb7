// Owns this process's part of the emulated machine: its NICs, and the device files it has opened.
#pragma once

namespace weft::preload {

// As open(2) of the device file of that number, as FdTable counts. The first one of a NIC brings it
// up, which may take as long as weftd does. All functions here may be called from any thread, and
// from signal handlers: see process.cpp.
[[nodiscard]] int open_device(int device, int flags);

// Whether a number that FdTable calls a device file still is one. It may have been closed past our
// wrappers, and be another file by now.
[[nodiscard]] bool is_still_device(int fd);

// `copy` is a duplicate of `fd`, which FdTable knows, from now on.
void duplicated(int fd, int copy);
// `fd`, a device file or a channel, is about to be closed, or has just been replaced by another
// file. The last descriptor of a device file takes everything with it.
void closing(int fd);

}  // namespace weft::preload
