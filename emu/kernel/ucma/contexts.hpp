// Owns the ids that programs know, of all open rdma_cm files of a process, and brings the events of
// the connection manager to the files that they belong to.
//
// How it is wired. A process has one cm::Manager, one Contexts, and one CmFile for each open
// descriptor of /dev/infiniband/rdma_cm. The thread that drives the manager calls dispatch() at the
// end of every round (emu/roce/cm/manager.hpp), and implements CmHost around its lock.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>

#include "emu/roce/cm/manager.hpp"
#include "srd/base/free_numbers.hpp"

namespace weft::kernel {

class CmFile;

class CmHost {
 public:
  // Runs `work` with the manager, its Contexts and all files to itself; then lets messages leave,
  // and dispatches what has become ready.
  virtual void exclusively(
      const std::function<void(roce::cm::Manager& manager, TimePoint now)>& work) = 0;
  // A thread of the program is about to sleep until an event comes: another thread must receive.
  virtual void expect_events() = 0;
  // The file behind a descriptor of the program's, or null.
  [[nodiscard]] virtual std::shared_ptr<CmFile> file_of(int fd) = 0;

 protected:
  ~CmHost() = default;
};

// Two numbers name an id: the program's (Context::id), which is reused only after destroy, and the
// manager's handle. A connection that no program has fetched yet has only the handle.
class Contexts {
 public:
  struct Context {
    std::uint32_t id = 0;
    CmFile* file = nullptr;
    roce::cm::Handle handle;
    std::uint64_t uid = 0;  // the program's; 0: it has not accepted yet, and hears nothing
    std::uint32_t events_reported = 0;
  };
  // A multicast group that an id has joined. Its events are counted here, and as the id's, too.
  struct Group {
    std::uint32_t number = 0;
    std::uint32_t context = 0;
    std::uint64_t uid = 0;
    std::uint32_t events_reported = 0;
  };

  // Gives all events that are ready to their files.
  void dispatch(roce::cm::Manager& manager);
  // The process ends: each peer is told. Destructors of the program, which run later, can
  // still destroy its ids.
  void leave_all(roce::cm::Manager& manager, TimePoint now);

  // --- For files.
  [[nodiscard]] Context& add(CmFile& file, roce::cm::Handle handle, std::uint64_t uid);
  // 0, ENOENT, or EINVAL: it is another file's.
  [[nodiscard]] int find(const CmFile& file, std::uint32_t id, Context*& found);
  // As long as it is there.
  [[nodiscard]] Context* find(std::uint32_t id);
  [[nodiscard]] Context* first_of(const CmFile& file);
  void remove(std::uint32_t id);
  // Null: too many.
  [[nodiscard]] Group* add_group(std::uint32_t context, std::uint64_t uid);
  [[nodiscard]] Group* find_group(std::uint32_t number);
  void remove_group(std::uint32_t number);

 private:
  static constexpr std::size_t kMaxGroups = 65536;

  // Numbers are shared by all files, as in the kernel, since MIGRATE_ID moves ids between them.
  FreeNumbers ids_;
  std::map<std::uint32_t, Context> contexts_;
  std::map<std::uint32_t, std::uint32_t> by_handle_;
  std::map<std::uint32_t, Group> groups_;
  FreeNumbers group_numbers_;
};

}  // namespace weft::kernel
