// Owns what the calls on device files need to know of this process (process.cpp has the table).
#pragma once

#include <fcntl.h>

#include <memory>

#include "emu/devices/nic_runner.hpp"
#include "emu/kernel/ucma/file.hpp"
#include "emu/kernel/umad/file.hpp"
#include "emu/kernel/uverbs/file.hpp"

namespace weft::preload {

// Of a NIC (verbs or datagrams), or of connection management. Shared by all descriptors of one open
// file; the last one takes it down.
struct OpenFile {
  std::unique_ptr<kernel::UverbsFile> verbs;
  devices::NicRunner* runner = nullptr;
  std::unique_ptr<kernel::CmFile> connections;
  std::unique_ptr<kernel::UmadFile> datagrams;
  int access_mode = O_RDWR;  // of open()'s flags

  [[nodiscard]] bool can_be_read() const {
    return access_mode == O_RDONLY || access_mode == O_RDWR;
  }
  [[nodiscard]] bool can_be_written() const {
    return access_mode == O_WRONLY || access_mode == O_RDWR;
  }
  // Null for a NIC's verbs, at which nobody sleeps.
  [[nodiscard]] kernel::StreamEnds* ends() const {
    return connections != nullptr ? connections->ends()
           : datagrams != nullptr ? datagrams->ends()
                                  : nullptr;
  }
};

// Null: error_without_file() says why.
[[nodiscard]] std::shared_ptr<OpenFile> file_of(int fd);
// By what its sleepers hold, whatever numbers it has by now. Null: its last one is closed.
[[nodiscard]] std::shared_ptr<OpenFile> file_with(const kernel::StreamEnds& ends);
// It was the parent's before a fork, or another thread has closed it since FdTable was asked. It
// may be open again by now.
[[nodiscard]] int error_without_file(int fd);
// This thread is inside the device already: a signal handler has interrupted it there.
[[nodiscard]] bool is_entered(const OpenFile& file);

// A child of vfork() shares the memory of its parent: the tables, and the descriptors in them, are
// the parent's. Asking is a system call.
[[nodiscard]] bool in_vfork_child();
// Whether the tables are this process's own, or shared with a child of vfork(). False: a copy that
// a child got past fork(). Costs no system call.
[[nodiscard]] bool is_own_copy();

}  // namespace weft::preload
