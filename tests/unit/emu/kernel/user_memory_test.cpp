// Tests of what memory may be registered.
//
// Linux pins the pages of a region, and refuses what is not there or may not be written to. Here
// nothing can be pinned: the device reads and writes memory of its own process, so a region that is
// not whole would be a crash in the middle of a transfer, and must be refused at once.
#include "emu/kernel/user_memory.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <fstream>
#include <thread>

#include "emu/kernel/mappings.hpp"
#include "tests/unit/emu/kernel/raw_client.hpp"

namespace weft::kernel {
namespace {

constexpr std::size_t kPage = 4096;
constexpr std::uint32_t kReadOnly = 0;
constexpr std::uint32_t kWritable = 1;

// Of as many pages as the parameter says: few and many are checked in different ways.
class RegisteredPages : public RawClient, public ::testing::WithParamInterface<std::size_t> {
 protected:
  void SetUp() override {
    open_context();
    pd = alloc_pd();
    pages = map_pages(size, PROT_READ | PROT_WRITE);
  }
  ~RegisteredPages() override { munmap(pages, size); }
  static std::byte* map_pages(std::size_t bytes, int protection, int fd = -1) {
    const int kind = fd < 0 ? MAP_ANONYMOUS : 0;
    void* const data = mmap(nullptr, bytes, protection, MAP_PRIVATE | MAP_NORESERVE | kind, fd, 0);
    EXPECT_NE(data, MAP_FAILED);
    return static_cast<std::byte*>(data);
  }
  // 0 or an errno.
  int enroll(void* data, std::size_t bytes, std::uint32_t access) {
    std::array<std::uint32_t, 3> keys{};
    const int error = reg_mr(pd, data, bytes, access, keys);
    return error != 0 ? error : destroy(abi::Command::dereg_mr, keys[0]);
  }
  std::byte* middle() const { return pages + size / kPage / 2 * kPage; }

  std::size_t size = GetParam() * kPage;
  std::byte* pages = nullptr;
  std::uint32_t pd = 0;
};

TEST_P(RegisteredPages, MustAllBeReadable) {
  EXPECT_EQ(enroll(pages, size, kWritable), 0);
  // Regions need not begin or end with a page.
  EXPECT_EQ(enroll(pages + 1, size - 2, kWritable), 0);
  ASSERT_EQ(mprotect(middle(), kPage, PROT_NONE), 0);
  EXPECT_EQ(enroll(pages, size, kWritable), EFAULT);
  EXPECT_EQ(enroll(pages, size, kReadOnly), EFAULT);
  ASSERT_EQ(mprotect(middle(), kPage, PROT_READ | PROT_WRITE), 0);
  EXPECT_EQ(enroll(pages, size, kWritable), 0);
}

TEST_P(RegisteredPages, MustAllBeThere) {
  ASSERT_EQ(munmap(middle(), kPage), 0);
  EXPECT_EQ(enroll(pages, size, kReadOnly), EFAULT);
  EXPECT_EQ(enroll(pages, static_cast<std::size_t>(middle() - pages), kWritable), 0);
}

TEST_P(RegisteredPages, MustAllBeWritableToBeWrittenTo) {
  ASSERT_EQ(mprotect(middle(), kPage, PROT_READ), 0);
  EXPECT_EQ(enroll(pages, size, kWritable), EFAULT);
  EXPECT_EQ(enroll(pages, size, kReadOnly), 0);
}

// The advice differs from page to page, so the kernel keeps a mapping for each.
TEST_P(RegisteredPages, MayConsistOfManyMappings) {
  for (std::byte* page = pages; page < pages + size; page += 2 * kPage) {
    ASSERT_EQ(madvise(page, kPage, MADV_DONTFORK), 0);
  }
  EXPECT_EQ(enroll(pages, size, kWritable), 0);
}

// Pages behind the end of a file are mapped and may be read by their protection, and yet kill who
// reads them.
TEST_P(RegisteredPages, OfAFileEndWhereTheFileEnds) {
  std::string name = ::testing::TempDir() + "weft-user-memory-XXXXXX";
  const int fd = mkstemp(name.data());
  ASSERT_GE(fd, 0);
  unlink(name.c_str());
  ASSERT_EQ(ftruncate(fd, static_cast<off_t>(size)), 0);
  std::byte* const mapped = map_pages(size, PROT_READ, fd);
  EXPECT_EQ(enroll(mapped, size, kReadOnly), 0);
  EXPECT_EQ(enroll(mapped, size, kWritable), EFAULT);
  ASSERT_EQ(ftruncate(fd, static_cast<off_t>(size / 2)), 0);
  EXPECT_EQ(enroll(mapped, size, kReadOnly), EFAULT);
  EXPECT_EQ(enroll(mapped, size / 2, kReadOnly), 0);
  munmap(mapped, size);
  close(fd);
}

// The check must not write: another thread may do so at the same moment.
TEST_P(RegisteredPages, KeepWhatOthersWriteMeanwhile) {
  std::atomic_ref first(*reinterpret_cast<std::uint64_t*>(pages));
  std::atomic_ref last(*reinterpret_cast<std::uint64_t*>(pages + size - 8));
  std::atomic<bool> stop = false;
  std::uint64_t lost = 0;
  std::thread writer([&] {
    for (std::uint64_t n = 1; !stop; ++n) {
      first.store(n);
      last.store(n << 56);  // the last byte
      lost += first.load() != n ? 1U : 0U;
      lost += last.load() != n << 56 ? 1U : 0U;
    }
  });
  for (int i = 0; i < 3000; ++i) {
    EXPECT_TRUE(user_range_ok(reinterpret_cast<std::uint64_t>(pages), size, true));
  }
  stop = true;
  writer.join();
  EXPECT_EQ(lost, 0U);
}

INSTANTIATE_TEST_SUITE_P(All, RegisteredPages, ::testing::Values(3, 16, 400));

class UserMemory : public RegisteredPages {};
INSTANTIATE_TEST_SUITE_P(Once, UserMemory, ::testing::Values(1));

// What is reserved and never used costs nothing.
TEST_P(UserMemory, HugeAndEmptyStaysEmpty) {
  // 64 GiB, as programs reserve that fill their memory later.
  constexpr std::size_t kHuge = std::size_t{1} << 36;
  void* const huge = mmap(nullptr, kHuge, PROT_READ | PROT_WRITE,
                          MAP_PRIVATE | MAP_NORESERVE | MAP_ANONYMOUS, -1, 0);
  if (huge == MAP_FAILED) {
    GTEST_SKIP() << "this machine does not let a process reserve 64 GiB that it does not use";
  }
  const auto resident = [] {
    std::ifstream statm("/proc/self/statm");
    std::size_t all = 0;
    std::size_t used = 0;
    statm >> all >> used;
    return used * kPage;
  };
  const std::size_t before = resident();
  EXPECT_EQ(enroll(huge, kHuge, kWritable), 0);
  // A check that touched each page would have made all of it resident.
  EXPECT_LT(resident(), before + (std::size_t{16} << 20));
  munmap(huge, kHuge);
}

TEST_P(UserMemory, StacksAndConstantsMayBeUsed) {
  std::array<std::byte, 200 * kPage> local{};
  EXPECT_EQ(enroll(local.data(), local.size(), kWritable), 0);
  static constexpr std::array<std::byte, 64> kConstant{};
  auto* const constant = const_cast<std::byte*>(kConstant.data());
  EXPECT_EQ(enroll(constant, kConstant.size(), kReadOnly), 0);
  EXPECT_EQ(enroll(constant, kConstant.size(), kWritable), EFAULT);
}

// Both ways of asking see the same; each mapping from its first to its last byte.
TEST_P(UserMemory, MappingsAreFoundByBothWaysOfAsking) {
  Mappings text(Mappings::Source::text);
  Mappings best;
  ASSERT_TRUE(text.good());
  std::uint64_t at = 0x10000;
  std::byte* const three = map_pages(3 * kPage, PROT_READ);
  ASSERT_EQ(mprotect(three + kPage, kPage, PROT_NONE), 0);
  at = reinterpret_cast<std::uint64_t>(three);
  for (const std::uint64_t offset : {std::size_t{0}, kPage, 2 * kPage - 1, 2 * kPage}) {
    for (Mappings* const mappings : {&text, &best}) {
      const auto found = mappings->find(at + offset);
      ASSERT_TRUE(found);
      EXPECT_LE(found->begin, at + offset);
      EXPECT_GT(found->end, at + offset);
      EXPECT_EQ(found->readable, offset == 0 || offset == 2 * kPage);
      EXPECT_FALSE(found->writable);
    }
  }
  ASSERT_EQ(munmap(three, 3 * kPage), 0);
  EXPECT_FALSE(Mappings(Mappings::Source::text).find(at + kPage));
  EXPECT_FALSE(Mappings().find(at + kPage));
}

}  // namespace
}  // namespace weft::kernel
