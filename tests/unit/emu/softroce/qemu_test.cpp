// Owns the tests of what QEMU is told, and of whether KVM is used.
//
// No QEMU runs. Its words are looked at one by one, because a wrong one shows only in a guest that
// does not come up.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "emu/softroce/guest.hpp"
#include "tests/support/temporary_folder.hpp"

namespace weft::softroce {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::Not;

GuestOptions options() {
  return {.folder = "/tmp/a,b",
          .image = "/image",
          .place = {.address = srd::Address::v4(10, 77, 3, 1),
                    .own_socket = "/tmp/a,b/guest.sock",
                    .network_socket = "/tmp/a,b/network.sock",
                    .mtu = 4200},
          .job = "true"};
}

// A folder whose name has a comma must not become another option.
TEST(QemuWords, HaveCommasTwice) {
  const auto words = qemu_words(options(), {3, 4, 5});
  EXPECT_THAT(words, Contains("name=opt/weft/job,file=/tmp/a,,b/job"));
  EXPECT_THAT(words, Contains(HasSubstr("local.path=/tmp/a,,b/guest.sock,remote.type=unix,"
                                        "remote.path=/tmp/a,,b/network.sock")));
  EXPECT_THAT(words, Not(Contains(HasSubstr("/a,b/"))));
}

// The three descriptors are output, errors, and control, in this order. Without KVM the processor
// is emulated (tcg).
TEST(QemuWords, GiveTheGuestItsNicAndItsStreams) {
  const auto words = qemu_words(options(), {3, 4, 5});
  EXPECT_THAT(words, Contains(HasSubstr("host_mtu=4200")));
  for (const char* stream :
       {"id=out,path=/dev/fd/3", "id=errors,path=/dev/fd/4", "id=control,path=/dev/fd/5"}) {
    EXPECT_THAT(words, Contains(HasSubstr(stream)));
  }
  EXPECT_THAT(words, Contains("q35,accel=tcg"));
}

TEST(QemuWords, CaptureOnlyWhereItIsAskedFor) {
  EXPECT_THAT(qemu_words(options(), {}), Not(Contains(HasSubstr("filter-dump"))));
  GuestOptions watched = options();
  watched.capture = "/a,b.pcap";
  EXPECT_THAT(qemu_words(watched, {}),
              Contains("filter-dump,id=dump,netdev=fabric,file=/a,,b.pcap,maxlen=65536"));
}

TEST(QemuWords, ShowAFolderOfThisMachineOnlyWhereItIsAskedFor) {
  EXPECT_THAT(qemu_words(options(), {}), Not(Contains(HasSubstr("9p"))));
  GuestOptions rooted = options();
  rooted.root = "/a,b";
  const auto words = qemu_words(rooted, {});
  EXPECT_THAT(words, Contains("local,id=root,path=/a,,b,security_model=none,readonly=on,"
                              "multidevs=remap"));
  EXPECT_THAT(words, Contains("name=opt/weft/root,string=9p"));
}

// The first NIC leads into weftd's network, and nowhere else.
TEST(QemuWords, HaveASecondNicOnlyWhereItIsAskedFor) {
  EXPECT_THAT(qemu_words(options(), {}), Not(Contains(HasSubstr("user,id=outside"))));
  GuestOptions forwarded = options();
  forwarded.forwards = {18515, 22};
  EXPECT_THAT(qemu_words(forwarded, {}),
              Contains("user,id=outside,hostfwd=tcp:127.0.0.1:18515-:18515,"
                       "hostfwd=tcp:127.0.0.1:22-:22"));
}

// A machine in a folder.
class Kvm : public ::testing::Test {
 protected:
  Kvm() {
    for (const char* folder : {"/proc", "/dev", "/sys/module"}) {
      std::filesystem::create_directories(root_.path() + folder);
    }
    write("/proc/cpuinfo", "processor\t: 0\nflags\t\t: fpu vmx sse\n");
    write("/dev/kvm", "");
  }
  void write(const std::string& name, const std::string& text) const {
    std::ofstream(root_.path() + name) << text;
  }

  testing::TemporaryFolder root_;
};

TEST_F(Kvm, IsUsedWhereTheProcessorHasIt) { EXPECT_TRUE(judge_kvm(root_.path()).usable); }

// A kind of KVM for machines without nested virtualisation: a guest comes up there, at a crawl.
TEST_F(Kvm, IsNotUsedBelowPvm) {
  std::filesystem::create_directory(root_.path() + "/sys/module/kvm_pvm");
  const KvmVerdict verdict = judge_kvm(root_.path());
  EXPECT_FALSE(verdict.usable);
  EXPECT_THAT(verdict.why, HasSubstr("PVM"));
}

// A flag that only contains the name, and the name in another line, are not it.
TEST_F(Kvm, IsNotUsedWithoutVirtualization) {
  write("/proc/cpuinfo", "processor\t: 0\nflags\t\t: fpu sse vmxish\nbugs\t: vmx\n");
  EXPECT_FALSE(judge_kvm(root_.path()).usable);
  std::filesystem::remove(root_.path() + "/dev/kvm");
  EXPECT_FALSE(judge_kvm(root_.path()).usable);
}

}  // namespace
}  // namespace weft::softroce
