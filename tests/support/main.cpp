// Owns main() of every GoogleTest program. Its exit code tells a skipped test from a passed one,
// and a sanitizer's finding on the way out, or a filter that no test matches, from a skipped one.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

int main(int argc, char** argv) {
  constexpr int kSkipped = 77;  // SKIP_RETURN_CODE of the tests that CMake declares
  ::testing::InitGoogleMock(&argc, argv);
  const int code = RUN_ALL_TESTS();
  const auto& all = *::testing::UnitTest::GetInstance();
  const bool nothing_else = all.successful_test_count() == 0 && all.skipped_test_count() > 0;
  if (code == 0 && all.test_to_run_count() == 0) {
    return 1;
  }
  return code == 0 && nothing_else ? kSkipped : code;
}
