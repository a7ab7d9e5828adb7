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

// A call of libc's with its arguments, which outlive this.
class StockCall {
 public:
  template <class Call>
  explicit StockCall(const Call& call)
      : call_(&call), make_([](const void* made) { return (*static_cast<const Call*>(made))(); }) {}
  int operator()() const { return make_(call_); }

 private:
  const void* call_;
  int (*make_)(const void*);
};

// `stock` gives `fd` a further number: `target`, which may stand for a file already, or any (-1).
// One of the two is a device file or a channel.
int duplicate(int fd, int target, StockCall stock);
// `stock` closes `fd`, a device file. Its last number takes everything with it.
int close_file(int fd, StockCall stock);
// `fd`, a device file, a channel or a socket that asks for devices, is about to be closed past
// these.
void closing(int fd);

}  // namespace weft::preload
