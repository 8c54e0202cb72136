#include "federated/update_scan.h"

#include <gtest/gtest.h>
#include <limits>
#include <string>
#include <vector>

#include "base/rng.h"
#include "federated/testing/updates.h"
#include "federated/update.h"

namespace varda::federated {
namespace {
namespace update_scan_test {

LayoutPointer layout() {
  return Layout::make({{"a", tensor::DType::kFp32, {3}},
                       {"b", tensor::DType::kFp32, {211, 100}},
                       {"c", tensor::DType::kFp32, {1}}})
      .value();
}

UpdateInfo sample_info() {
  UpdateInfo out;
  out.samples = 4;
  return out;
}

std::optional<double> scanned(const std::string& file, std::size_t piece,
                              std::size_t announced = 0) {
  UpdateScan scan(layout(), announced > 0 ? announced : file.size());
  for (std::size_t at = 0; at < file.size(); at += piece)
    scan.feed(std::string_view(file).substr(at, piece));
  return scan.norm();
}

TEST(UpdateScan, GivesTheNormOfTheReaderForPiecesOfAnySize) {
  const std::vector<float> delta = testing::random_values(layout()->size(), 3);
  const std::string file = encode_update(sample_info(), *layout(), delta).value();
  const auto reader = UpdateReader::of(file, layout());
  ASSERT_TRUE(reader.ok());
  for (const std::size_t piece :
       {std::size_t{1}, std::size_t{7}, std::size_t{4096}, std::size_t{65'536}, file.size()})
    EXPECT_EQ(scanned(file, piece), (*reader)->norm()) << piece;
}

TEST(UpdateScan, LeavesOtherFilesToTheReader) {
  const std::vector<float> delta = testing::random_values(layout()->size(), 3);
  const std::string file = encode_update(sample_info(), *layout(), delta).value();
  for (const Encoding encoding : {Encoding::kInt8, Encoding::kTopK}) {
    const std::string other =
        encode_update(sample_info(), *layout(), delta, {.encoding = encoding}).value();
    EXPECT_EQ(scanned(other, 4096), std::nullopt) << to_string(encoding);
  }
  const std::string half =
      encode_update(sample_info(), *layout(), delta, {.dtype = tensor::DType::kFp16}).value();
  EXPECT_EQ(scanned(half, 4096), std::nullopt);
  EXPECT_EQ(scanned(file.substr(0, file.size() - 1), 4096, file.size()), std::nullopt);
  EXPECT_EQ(scanned(file + "more", 4096, file.size()), std::nullopt);
  EXPECT_EQ(scanned("", 1), std::nullopt);
  EXPECT_EQ(scanned(std::string(100, '\xff'), 3), std::nullopt);
  EXPECT_EQ(scanned(std::string(100, '\0'), 3), std::nullopt);
}

TEST(UpdateScan, ValueThatIsNotFiniteIsForTheReaderToName) {
  const std::vector<float> delta = testing::random_values(layout()->size(), 3);
  std::string file = encode_update(sample_info(), *layout(), delta).value();
  const float nan = std::numeric_limits<float>::quiet_NaN();
  file.replace(file.size() - 40, sizeof nan, reinterpret_cast<const char*>(&nan), sizeof nan);
  EXPECT_EQ(scanned(file, 4096), std::nullopt);
}

}  // namespace update_scan_test
}  // namespace
}  // namespace varda::federated
