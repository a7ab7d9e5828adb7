// Owns what this library does to descriptors past its own wrappers.
#pragma once

#include <sys/types.h>

namespace weft::preload {

// Moves a descriptor of ours to a high number, out of the way of programs that expect low ones, and
// marks it private, so that a program that closes all descriptors does not close it. Returns the
// new number.
[[nodiscard]] int keep_own(int fd);
void forget_own(int fd);

// What a descriptor leads to, whatever its number.
struct Inode {
  dev_t device = 0;
  ino_t number = 0;
  bool operator==(const Inode&) const = default;
};

// Each open device file has an inode of its own, by which a number that was closed and reused is
// recognised. Zeros: `fd` is closed.
[[nodiscard]] Inode inode_of(int fd);

// Gives `fd` those of open()'s flags that the kernel can keep. It cannot keep the access mode: we
// read and write there, too.
void keep_flags(int fd, int flags);

// Lets `fd` lead nowhere until libc's fclose() has closed it. Another thread may use it in
// between. It must find a closed descriptor then, and not the socket or the memory from which the
// device file was made. There may be no number left then, so one is kept for it. These are called
// under the lock of the table of files.
void keep_nowhere();
void forget_nowhere();  // somebody else closes it
void lead_nowhere(int fd);

// This process has as many as it may.
[[nodiscard]] bool has_no_descriptor_left();

}  // namespace weft::preload
