#include "worker/api.h"

#include <algorithm>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <thread>

#include "net/client.h"
#include "worker/testing/fake_agent.h"

namespace varda::worker {
namespace worker_api_test {

using std::chrono::milliseconds;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::SizeIs;

class WorkerApis : public ::testing::Test {
 protected:
  Status upload(const std::string& bytes, const std::string& hex = "") {
    return api_.upload(ctx_, files_.write("model.onnx", bytes), "model-5",
                       hex.empty() ? codec::Sha256::of(bytes).hex() : hex);
  }

  const Context ctx_ = Context::background().with_timeout(std::chrono::seconds(60));
  const os::testing::TestDirectory files_;
  FakeAgent agent_;
  const std::unique_ptr<net::HttpClient> http_ = net::make_client({.unix_socket = agent_.socket()});
  WorkerApi api_{{.token_file = agent_.token_file(),
                  .first_pause = milliseconds(1),
                  .longest_pause = milliseconds(5),
                  .piece_bytes = 10},
                 *http_,
                 os::real_file_system()};
};

TEST_F(WorkerApis, SmallFileIsOneRequestAfterTheQuestion) {
  agent_.start();
  ASSERT_TRUE(upload("small").ok());
  EXPECT_EQ(agent_.file("model-5"), "small");
  EXPECT_THAT(agent_.requests(),
              ElementsAre("HEAD /v1/artifacts/model-5", "PUT /v1/artifacts/model-5"));
}

TEST_F(WorkerApis, LargeFileGoesInPieces) {
  agent_.start();
  const std::string bytes(95, 'x');
  ASSERT_TRUE(upload(bytes).ok());
  EXPECT_EQ(agent_.file("model-5"), bytes);
  EXPECT_THAT(agent_.requests(), SizeIs(11));
}

TEST_F(WorkerApis, LostAnswersRepeatThePiecesOnly) {
  agent_.start();
  const std::string bytes = "0123456789abcdefghijklmnopqrstuvwxyz";
  agent_.lose_answers(5);
  const Status status = upload(bytes);
  ASSERT_TRUE(status.ok()) << status.error();
  EXPECT_EQ(agent_.file("model-5"), bytes);
}

TEST_F(WorkerApis, LostAnswerOfTheLastPieceIsAskedAgain) {
  agent_.start();
  agent_.accept_file("model-5", "0123456789abc");
  EXPECT_TRUE(upload("0123456789abc").ok());
}

TEST_F(WorkerApis, OtherFileUnderTheNameIsRefused) {
  agent_.start();
  agent_.accept_file("model-5", "abcdefghijklm");
  const Status same_size = upload("0123456789abc");
  ASSERT_FALSE(same_size.ok());
  EXPECT_EQ(same_size.error().code(), Code::kInvalid);
  EXPECT_THAT(same_size.error().message(), HasSubstr("another file model-5"));
  const Status longer = upload("0123456789abcdef");
  ASSERT_FALSE(longer.ok());
  EXPECT_EQ(longer.error().code(), Code::kInvalid);
  EXPECT_THAT(longer.error().message(), HasSubstr("accepted already"));
}

TEST_F(WorkerApis, AbsentAgentIsAwaited) {
  std::jthread later([&] {
    (void)Context::background().sleep_for(milliseconds(20));
    agent_.start();
  });
  ASSERT_TRUE(api_.deliver(ctx_, "PUT", "/v1/results/final", codec::Json::object()).ok());
  EXPECT_THAT(agent_.requests(), Contains("PUT /v1/results/final"));
}

TEST_F(WorkerApis, ReplacedTokenIsReadAgain) {
  agent_.start();
  ASSERT_TRUE(api_.send(ctx_, "PUT", "/v1/progress", codec::Json::object()).ok());
  agent_.change_token("other");
  EXPECT_TRUE(api_.send(ctx_, "PUT", "/v1/progress", codec::Json::object()).ok());
}

TEST_F(WorkerApis, RefusalsDifferByWhetherARetryHelps) {
  agent_.start();
  const struct {
    int status;
    Code code;
  } cases[] = {{400, Code::kInvalid},     {403, Code::kInvalid},     {404, Code::kInvalid},
               {413, Code::kInvalid},     {401, Code::kUnavailable}, {429, Code::kUnavailable},
               {503, Code::kUnavailable}, {500, Code::kUnavailable}};
  for (const auto& one : cases) {
    agent_.refuse("PUT", one.status);
    const Status status = api_.send(ctx_, "PUT", "/v1/progress", codec::Json::object());
    ASSERT_FALSE(status.ok());
    EXPECT_EQ(status.error().code(), one.code) << one.status;
    EXPECT_THAT(status.error().message(), HasSubstr(std::to_string(one.status)));
    EXPECT_THAT(status.error().message(), HasSubstr("not accepted"));
  }
}

TEST_F(WorkerApis, StopEndsTheRetries) {
  std::stop_source stop;
  stop.request_stop();
  const Status status =
      api_.deliver(Context(stop.get_token()), "PUT", "/v1/results/final", codec::Json::object());
  ASSERT_FALSE(status.ok());
  EXPECT_EQ(status.error().code(), Code::kCancelled);
}

}  // namespace worker_api_test
}  // namespace varda::worker
