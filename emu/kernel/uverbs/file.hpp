// Owns one open device file: its handle table, and the commands that the application writes to it.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "emu/kernel/device.hpp"
#include "emu/kernel/uverbs/ioctl.hpp"
#include "srd/base/free_numbers.hpp"

namespace weft::kernel {

// Calls may come from any thread of the application; each runs with the device to itself
// (Runner::exclusively()). So two commands on one file never overlap, and a handle that was found
// stays valid until the command ends. The application's memory is read once, at the beginning, and
// checked after that.
class UverbsFile {
 public:
  // `hooks` may be null.
  UverbsFile(Device& device, Runner& runner, LibraryHooks* hooks);
  // Frees everything that was made through it, as the kernel does when a process closes or dies.
  ~UverbsFile();
  UverbsFile(const UverbsFile&) = delete;
  UverbsFile& operator=(const UverbsFile&) = delete;

  // The native descriptor to hand to the application as a duplicate, or -1 with errno set.
  [[nodiscard]] int open();

  // As write(2) and ioctl(2), but errors are returned negative. `fd` is the number the application
  // used.
  [[nodiscard]] ssize_t write(int fd, const void* buffer, std::size_t size);
  [[nodiscard]] int ioctl(unsigned long request, std::uint64_t argument);
  // The same as write() for the one command that comes with every post of some devices, POST_SEND,
  // without the table of commands. Nothing, and nothing done: this is another command, an unusual
  // form of this one, or names no queue pair.
  [[nodiscard]] std::optional<ssize_t> try_post_send(const void* buffer, std::size_t size);
  // The application closes its end of the channel `fd`. No more is heard of it, unless completion
  // queues still lead there.
  void closed_channel(int fd);

 private:
  // One command on its way: the common part of its body (at least as long as the table says), and
  // replies.
  struct Call {
    int fd = -1;
    std::span<const std::byte> body;
    std::vector<std::byte> reply;
    Udata udata;
    void (LibraryHooks::*hook)(const LibraryHooks::Touched&) = nullptr;  // to call afterwards
    LibraryHooks::Touched touched{};
    bool expects_events = false;  // the application is about to sleep

    template <class T>
    [[nodiscard]] T read(std::size_t offset = 0) const;
    template <class T>
    void answer(const T& value);
  };
  using Handler = Outcome<void> (UverbsFile::*)(Call&);
  struct Entry {
    std::uint32_t command;
    std::size_t body;   // bytes of the common part, with the response address where there is one
    std::size_t reply;  // bytes of the common reply, the least there must be room for
    Handler handler;
    bool optional = false;  // see Device::has_optional_commands()
  };
  // Null: there is no such command, or not of this device.
  [[nodiscard]] const Entry* find_entry(std::span<const Entry> table, std::uint32_t command) const;
  static const Entry kLegacy[];
  static const Entry kExtended[];

  [[nodiscard]] int run_legacy(int fd, const abi::CommandHeader& header,
                               std::span<const std::byte> body);
  [[nodiscard]] int run_extended(int fd, const abi::CommandHeader& header,
                                 std::span<const std::byte> body);
  [[nodiscard]] int run(const Entry& entry, Call& call);
  void count(const Entry& entry, int error);

  Outcome<void> get_context(Call& call);
  Outcome<void> query_device(Call& call);
  Outcome<void> query_device_extended(Call& call);
  Outcome<void> query_port(Call& call);
  Outcome<void> alloc_pd(Call& call);
  Outcome<void> dealloc_pd(Call& call);
  Outcome<void> reg_mr(Call& call);
  Outcome<void> rereg_mr(Call& call);
  Outcome<void> dereg_mr(Call& call);
  Outcome<void> create_ah(Call& call);
  Outcome<void> destroy_ah(Call& call);
  Outcome<void> create_comp_channel(Call& call);
  // An object that was just made and inserted.
  template <class T>
  struct Made {
    std::uint32_t handle;
    T& object;
  };
  Outcome<Made<Cq>> make_cq(Call& call, const abi::CreateCq& request);
  Outcome<abi::CreateQpReply> make_qp(Call& call, const abi::CreateQp& request);
  Outcome<void> change_qp(Call& call, const abi::ModifyQp& request);
  Outcome<void> create_cq(Call& call);
  Outcome<void> create_cq_extended(Call& call);
  Outcome<void> destroy_cq(Call& call);
  Outcome<void> create_qp(Call& call);
  Outcome<void> create_qp_extended(Call& call);
  Outcome<void> modify_qp(Call& call);
  Outcome<void> modify_qp_extended(Call& call);
  Outcome<void> query_qp(Call& call);
  Outcome<void> destroy_qp(Call& call);
  // optional_commands.cpp
  Outcome<void> alloc_mw(Call& call);
  Outcome<void> dealloc_mw(Call& call);
  Outcome<void> resize_cq(Call& call);
  Outcome<void> req_notify_cq(Call& call);
  Outcome<void> post_send(Call& call);
  Outcome<void> attach_multicast(Call& call);
  Outcome<void> detach_multicast(Call& call);
  Outcome<void> create_srq(Call& call);
  Outcome<void> modify_srq(Call& call);
  Outcome<void> query_srq(Call& call);
  Outcome<void> destroy_srq(Call& call);

  // A row of the table of ioctl methods.
  struct Method {
    abi::IoctlObject object;
    std::uint16_t method;
    IoctlCall::Spec attributes;
    Outcome<void> (UverbsFile::*handler)(IoctlCall&);  // none: no such device supports it
  };
  static const Method kMethods[];
  // Checks the call against the method that it names, and runs it. An errno, or 0.
  [[nodiscard]] int run_method(IoctlCall& call);
  [[nodiscard]] int run_own_method(IoctlCall& call, const OwnIoctlMethod& method);
  [[nodiscard]] int run_counted(const std::function<Outcome<void>()>& handler);

  Outcome<void> ioctl_query_port(IoctlCall& call);
  Outcome<void> ioctl_query_gid_table(IoctlCall& call);
  Outcome<void> ioctl_query_gid_entry(IoctlCall& call);
  Outcome<void> ioctl_query_port_speed(IoctlCall& call);
  Outcome<void> ioctl_counter_capabilities(IoctlCall& call);
  Outcome<void> ioctl_create_counter(IoctlCall& call);
  Outcome<void> ioctl_destroy_counter(IoctlCall& call);
  Outcome<void> ioctl_modify_counter(IoctlCall& call);
  Outcome<void> ioctl_read_counter(IoctlCall& call);
  Outcome<void> ioctl_attach_counter(IoctlCall& call);

  template <class T>
  [[nodiscard]] T* find(std::uint32_t handle, ObjectKind kind);
  [[nodiscard]] std::uint32_t insert(std::unique_ptr<Object> object);
  void remove(std::unique_ptr<Object>& object);
  // Where such objects are counted; null: nowhere.
  [[nodiscard]] std::uint64_t* count_of(ObjectKind kind);
  // The error of a command with a wrong handle: there is no such object, or it is of another kind.
  [[nodiscard]] int nothing_of_the_kind(std::uint32_t handle) const;
  [[nodiscard]] Outcome<void> destroy(std::uint32_t handle, ObjectKind kind);
  [[nodiscard]] Channel* find_channel(int fd);
  void free_channel(int fd);

  Device& device_;
  Runner& runner_;
  LibraryHooks* hooks_;
  QueueMemory queues_;
  EventChannel async_{EventChannel::Kind::asynchronous};
  bool has_context_ = false;
  FreeNumbers handles_;
  std::vector<std::unique_ptr<Object>> objects_;  // by handle
  // Completion channels by the application's descriptor, the latest last; objects_ owns them.
  std::vector<std::pair<int, Channel*>> channels_;
};

}  // namespace weft::kernel
