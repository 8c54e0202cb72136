#include "artifact/digest_reader.h"

#include <gtest/gtest.h>
#include <latch>
#include <thread>

#include "artifact/testing/manual_clock.h"
#include "artifact/testing/origin.h"
#include "os/testing/memory_file_system.h"

namespace varda::artifact {
namespace digest_reader_test {

using State = DigestReader::Answer::State;

constexpr const char* kFile = "http://files/model.onnx";

class DigestReaderTest : public ::testing::Test {
 protected:
  DigestReader::Options options() const {
    DigestReader::Options options;
    options.transport.clock = &clock;
    return options;
  }
  static DigestReader::Answer result_of(DigestReader& reader, const std::string& url) {
    auto answer = reader.ask(url);
    while (answer.state == State::kReading) {
      std::this_thread::yield();
      answer = reader.ask(url);
    }
    return answer;
  }

  os::testing::MemoryFileSystem fs;
  testing::Origin origin;
  testing::ManualClock clock;
};

TEST_F(DigestReaderTest, AnswerIsDigestAndSizeDespiteABrokenConnection) {
  const std::string bytes(50'000, 'm');
  origin.put(kFile, testing::Origin::File{.bytes = bytes, .break_after = 20'000});
  DigestReader reader(options(), fs, origin);
  EXPECT_EQ(reader.ask(kFile).state, State::kReading);
  const auto answer = result_of(reader, kFile);
  ASSERT_EQ(answer.state, State::kRead) << answer.message;
  EXPECT_EQ(answer.facts.digest, codec::Sha256::of(bytes));
  EXPECT_EQ(answer.facts.bytes, bytes.size());
  EXPECT_EQ(origin.bytes_served(), bytes.size());
}

TEST_F(DigestReaderTest, FileUrlIsReadBelowAllowedDirectoriesOnly) {
  ASSERT_TRUE(fs.make_directories("/models", 0755).ok());
  ASSERT_TRUE(os::write_file_atomically(fs, "/models/a.pb", "graph").ok());
  auto allowed = options();
  allowed.file_roots = {"/models"};
  DigestReader reader(allowed, fs, origin);
  const auto answer = result_of(reader, "file:///models/a.pb");
  ASSERT_EQ(answer.state, State::kRead) << answer.message;
  EXPECT_EQ(answer.facts.digest, codec::Sha256::of("graph"));
  EXPECT_EQ(result_of(reader, "file:///etc/passwd").state, State::kFailed);
  DigestReader usual(options(), fs, origin);
  EXPECT_EQ(result_of(usual, "file:///models/a.pb").state, State::kFailed);
}

TEST_F(DigestReaderTest, NextQuestionAfterAnAnswerReadsTheFileAgain) {
  origin.put(kFile, std::string("first"));
  DigestReader reader(options(), fs, origin);
  EXPECT_EQ(result_of(reader, kFile).facts.digest, codec::Sha256::of("first"));
  origin.put(kFile, std::string("second"));
  EXPECT_EQ(result_of(reader, kFile).facts.digest, codec::Sha256::of("second"));
}

// The object that asked first was deleted. A later object must not get the digest of former bytes.
TEST_F(DigestReaderTest, AnswerThatNoCallerTookExpires) {
  origin.put("http://files/1.onnx", std::string("first"));
  origin.put("http://files/2.onnx", std::string("2"));
  auto one = options();
  one.threads = 1;
  DigestReader reader(one, fs, origin);
  reader.ask("http://files/1.onnx");
  EXPECT_EQ(result_of(reader, "http://files/2.onnx").state, State::kRead);  // after the first file
  origin.put("http://files/1.onnx", std::string("second"));
  clock.advance(std::chrono::seconds(61));
  EXPECT_EQ(result_of(reader, "http://files/1.onnx").facts.digest, codec::Sha256::of("second"));
}

TEST_F(DigestReaderTest, FailureStaysUntilThePauseHasPassed) {
  DigestReader reader(options(), fs, origin);
  const auto failed = result_of(reader, kFile);
  EXPECT_EQ(failed.state, State::kFailed);
  EXPECT_NE(failed.message.find(kFile), std::string::npos) << failed.message;
  origin.put(kFile, std::string("late"));
  EXPECT_EQ(reader.ask(kFile).state, State::kFailed);
  clock.advance(std::chrono::seconds(61));
  EXPECT_EQ(result_of(reader, kFile).state, State::kRead);
}

TEST_F(DigestReaderTest, HtmlPageAndEmptyFileAndForbiddenSchemeFail) {
  origin.put("http://files/page.onnx", std::string("<!DOCTYPE html><html>sign in</html>"));
  origin.put("http://files/empty.onnx", std::string());
  DigestReader reader(options(), fs, origin);
  for (const char* url : {"http://files/page.onnx", "http://files/empty.onnx", "file:///etc/passwd",
                          "ftp://h/m.onnx"})
    EXPECT_EQ(result_of(reader, url).state, State::kFailed) << url;
}

TEST_F(DigestReaderTest, FileThatFinishedFirstMakesRoom) {
  origin.put("http://files/3.onnx", std::string("3"));
  auto limited = options();
  limited.files_max = 2;
  DigestReader reader(limited, fs, origin);
  EXPECT_EQ(result_of(reader, "http://files/1.onnx").state, State::kFailed);
  clock.advance(std::chrono::seconds(1));
  EXPECT_EQ(result_of(reader, "http://files/2.onnx").state, State::kFailed);
  EXPECT_EQ(result_of(reader, "http://files/3.onnx").state, State::kRead);
  EXPECT_EQ(reader.ask("http://files/2.onnx").state, State::kFailed);
}

TEST_F(DigestReaderTest, DestructorStopsADownloadThatIsSilent) {
  origin.put(kFile, testing::Origin::File{.bytes = "m", .no_answer = true});
  std::latch requested(1);
  origin.on_request([&] { requested.count_down(); });
  {
    DigestReader reader(options(), fs, origin);
    EXPECT_EQ(reader.ask(kFile).state, State::kReading);
    requested.wait();
  }
}

}  // namespace digest_reader_test
}  // namespace varda::artifact
