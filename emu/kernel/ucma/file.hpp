// Owns one open /dev/infiniband/rdma_cm: the commands that librdmacm writes to it, and their
// answers, with Linux's errors.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "emu/kernel/abi/ucma.hpp"
#include "emu/kernel/ucma/contexts.hpp"
#include "emu/kernel/ucma/event_queue.hpp"

namespace weft::kernel {

// One thread of the program at a time runs a command (CmHost::exclusively()); threads may share a
// file.
class CmFile {
 public:
  // Both must outlive it.
  CmFile(Contexts& contexts, CmHost& host) : contexts_(contexts), host_(host) {}
  // Destroys the ids that are this file's.
  ~CmFile();
  CmFile(const CmFile&) = delete;
  CmFile& operator=(const CmFile&) = delete;

  // The program's descriptor, or -1 with errno set. Its fstat() must say that it is a device.
  [[nodiscard]] int open() { return events_.open(); }
  // To sleep at.
  [[nodiscard]] StreamEnds* ends() const { return events_.ends(); }
  // As write(2), but errors are returned negative, and it never sleeps: where there is no event it
  // says EAGAIN. Then the caller sleeps until the descriptor is readable, if that is what the
  // program wants, and tries again. A thread may be cancelled in its sleep, and must have nothing
  // on its stack then that wants to be destroyed.
  [[nodiscard]] ssize_t write(const void* buffer, std::size_t size);
  // Before that sleep.
  void expect_events() { host_.expect_events(); }
  // The thread that has got the last event and has not asked for the next one yet, or 0.
  [[nodiscard]] pid_t event_handler() const {
    return event_handler_.load(std::memory_order_relaxed);
  }

  // Called by Contexts, with all to itself.
  void queue(const Contexts::Context& context, const roce::cm::Event& event);
  // Its peer is told, and what waits for the program is gone. The manager does not know its handle
  // any more.
  void part(roce::cm::Manager& manager, TimePoint now, const Contexts::Context& context);

 private:
  // One command on its way. Lives for one write(); the handler fills `reply`, which is copied to
  // the program afterwards.
  struct Call {
    roce::cm::Manager& manager;
    TimePoint now;
    std::span<const std::byte> body;
    std::size_t room = 0;     // for the reply
    CmFile* other = nullptr;  // that the command names, or none
    std::vector<std::byte> reply{};

    template <class T>
    [[nodiscard]] T read() const;
    template <class T>
    void answer(const T& value);
  };
  using Handler = int (CmFile::*)(Call&);
  struct Entry {
    abi::ucma::Command command;
    std::size_t body;        // the least
    std::size_t reply;       // the most
    std::size_t least_room;  // for it
    std::size_t response;    // where in the body its address is
    Handler handler;
  };
  static const Entry kCommands[];

  [[nodiscard]] int run(const Entry& entry, std::span<const std::byte> body, std::size_t room,
                        CmFile* other = nullptr);
  [[nodiscard]] int take_over(const Entry& entry, std::span<const std::byte> body,
                              std::size_t room);

  [[nodiscard]] int create_id(Call& call);
  // Returns how many events of it the program has fetched.
  [[nodiscard]] std::uint32_t destroy(roce::cm::Manager& manager, TimePoint now,
                                      const Contexts::Context& context);
  [[nodiscard]] int destroy_id(Call& call);
  [[nodiscard]] int bind_ip(Call& call);
  [[nodiscard]] int bind(Call& call);
  [[nodiscard]] int resolve_ip(Call& call);
  [[nodiscard]] int resolve_addr(Call& call);
  [[nodiscard]] int resolve_route(Call& call);
  [[nodiscard]] int query_route(Call& call);
  [[nodiscard]] int query(Call& call);
  [[nodiscard]] int connect(Call& call);
  [[nodiscard]] int listen(Call& call);
  [[nodiscard]] int accept(Call& call);
  [[nodiscard]] int reject(Call& call);
  [[nodiscard]] int disconnect(Call& call);
  [[nodiscard]] int init_qp_attr(Call& call);
  [[nodiscard]] int get_event(Call& call);
  [[nodiscard]] int set_option(Call& call);
  [[nodiscard]] int notify(Call& call);
  [[nodiscard]] int join_ip_multicast(Call& call);
  [[nodiscard]] int join_multicast(Call& call);
  [[nodiscard]] int join(Call& call, std::uint32_t id, std::uint64_t uid,
                         const roce::cm::SocketAddress& address);
  [[nodiscard]] int leave_multicast(Call& call);
  [[nodiscard]] int migrate_id(Call& call);

  [[nodiscard]] int find(std::uint32_t id, Contexts::Context*& found) {
    return contexts_.find(*this, id, found);
  }
  // One that has a NIC.
  [[nodiscard]] int find_on_nic(const Call& call, std::uint32_t id, Contexts::Context*& found);

  Contexts& contexts_;
  CmHost& host_;
  CmEventQueue events_;
  std::atomic<pid_t> event_handler_{0};
};

}  // namespace weft::kernel
