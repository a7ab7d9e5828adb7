// Owns the tests of captures whose file does not open, or does not take what comes.
#include "emu/daemon/capture.hpp"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>

#include <chrono>
#include <filesystem>
#include <future>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "tests/support/temporary_folder.hpp"

namespace weft::daemon {
namespace {

using namespace std::chrono_literals;

// As on a server that does not answer: opening waits for the test, and its caller for a
// millisecond. It succeeds when the caller has long been told otherwise, and then must not touch
// what is gone.
TEST(Capture, AFileThatDoesNotOpenHoldsNobodyUp) {
  const testing::TemporaryFolder folder;
  const std::string path = folder.path() + "/late.pcapng";
  std::promise<void> answers;
  const auto opened = std::make_shared<std::promise<void>>();
  const auto writer = open_within(1ms, [path, opened, answer = answers.get_future().share()] {
    answer.wait();
    auto file = srd::PcapngWriter::create(path, "late");
    opened->set_value();
    return file;
  });
  ASSERT_FALSE(writer);
  EXPECT_EQ(writer.error().code, ErrorCode::io_error);
  EXPECT_NE(writer.error().message.find("does not open"), std::string::npos);
  answers.set_value();
  opened->get_future().wait();
  EXPECT_TRUE(std::filesystem::exists(path));
}

TEST(Capture, AFileThatOpensIsTheCallers) {
  const testing::TemporaryFolder folder;
  const std::string path = folder.path() + "/now.pcapng";
  const auto writer = open_within(10s, [&] { return srd::PcapngWriter::create(path, "now"); });
  ASSERT_TRUE(writer);
  EXPECT_FALSE(writer->failed());
}

// The writer gathers frames in memory before it writes them. Those that the disk did not take count
// as missing, and the file ends with a whole block, or no program could read it. The disk is full
// by a limit on the size of files, whose signal is ignored: 300 frames of 1000 bytes are more than
// that.
TEST(Capture, WhatTheDiskDoesNotTakeIsMissed) {
  const testing::TemporaryFolder folder;
  const std::string path = folder.path() + "/full.pcapng";
  auto writer = srd::PcapngWriter::create(path, "full");
  ASSERT_TRUE(writer);
  const auto empty = std::filesystem::file_size(path);
  const auto before = ::signal(SIGXFSZ, SIG_IGN);
  rlimit limit{};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &limit), 0);
  const rlimit small{200'000, limit.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &small), 0);
  const std::vector<std::byte> frame(1000);
  const std::span<const std::byte> bytes = frame;
  constexpr std::uint64_t kFrames = 300;
  for (std::uint64_t i = 0; i < kFrames; ++i) {
    writer->write(i, srd::PcapngWriter::Direction::unknown, std::span(&bytes, 1));
  }
  writer->flush();
  ::setrlimit(RLIMIT_FSIZE, &limit);
  ::signal(SIGXFSZ, before);
  EXPECT_TRUE(writer->failed());
  EXPECT_EQ(writer->packets() + writer->skipped(), kFrames);
  EXPECT_GT(writer->packets(), 0U);
  const auto per_frame = (std::filesystem::file_size(path) - empty) / writer->packets();
  EXPECT_GE(per_frame, frame.size());
  EXPECT_EQ(std::filesystem::file_size(path), empty + per_frame * writer->packets());
}

}  // namespace
}  // namespace weft::daemon
