// The client's handling of answers that are compressed, refused, postponed, or from another
// program.
#include <deque>
#include <gtest/gtest.h>

#include "codec/gzip.h"
#include "kube/client.h"

namespace varda::kube {
namespace answers_test {

using std::chrono::seconds;

const Resource kMaps{"", "v1", "ConfigMap", "configmaps", true};

struct Scripted {
  int status = 200;
  std::string body;
  net::Headers headers = {};
};

std::string list_of(int items, std::size_t bytes = 1) {
  std::string out = R"({"kind": "ConfigMapList", "metadata": {"resourceVersion": "9"}, "items": [)";
  for (int i = 0; i < items; ++i)
    out += std::string(i ? "," : "") + R"({"metadata": {"name": "m)" + std::to_string(i) +
           R"("}, "data": {"k": ")" + std::string(bytes, 'x') + "\"}}";
  return out + "]}";
}

/// A server that sends its answers one after the other, and repeats the last one.
class AnswersTest : public ::testing::Test {
 protected:
  explicit AnswersTest() = default;

  Client client(Client::Options options = {}) {
    options.metrics = &registry_;
    options.base_url = "https://api.test:6443";
    return {*http_, std::move(options)};
  }
  void script(std::deque<Scripted> answers) { answers_ = std::move(answers); }
  Result<List> list(const Client& client) { return client.list_all(ctx_, kMaps, {.limit = 2}); }

  net::Response next(const net::Request& request) {
    seen_.push_back(request.headers);
    targets_.push_back(request.target);
    const Scripted answer = answers_.front();
    if (answers_.size() > 1) answers_.pop_front();
    return {.status = answer.status, .headers = answer.headers, .body = answer.body};
  }

  std::deque<Scripted> answers_;
  std::vector<net::Headers> seen_;
  std::vector<std::string> targets_;
  std::unique_ptr<net::HttpClient> http_ =
      net::loopback(net::inline_handler([this](const auto& r) { return next(r); }));
  metrics::Registry registry_;
  Context ctx_ = Context().with_timeout(seconds(60));
};

TEST_F(AnswersTest, GzipAnswersAreUnpackedUpToTheSizeLimit) {
  const net::Headers gzip{{"Content-Encoding", "gzip"}};
  const std::string packed = codec::gzip(list_of(3, 100'000));
  ASSERT_LT(packed.size(), 10'000u);
  script({{200, packed, gzip}});
  const auto all = list(client());
  ASSERT_TRUE(all.ok()) << all.error();
  EXPECT_EQ(all->items.size(), 3u);
  EXPECT_EQ(seen_.back().find("Accept-Encoding"), "gzip");

  EXPECT_EQ(list(client({.response_bytes_max = 200'000})).error().code(), Code::kExhausted);
  script({{200, packed.substr(0, packed.size() / 2), gzip}});
  EXPECT_EQ(list(client()).error().code(), Code::kUnavailable) << "cut off";
  script({{200, "<html>", gzip}});
  EXPECT_EQ(list(client()).error().code(), Code::kCorrupt);
  script({{200, list_of(1), {{"Content-Encoding", "br"}}}});
  EXPECT_EQ(list(client()).error().code(), Code::kCorrupt);
  script(
      {{404,
        codec::gzip(
            R"({"kind": "Status", "code": 404, "reason": "NotFound", "message": "no such thing"})"),
        gzip}});
  EXPECT_EQ(list(client()).error().message(), "no such thing");
}

TEST_F(AnswersTest, WatchRequestsNoCompressionButAcceptsIt) {
  const std::string event =
      R"({"type": "ADDED", "object": {"metadata": {"name": "a", "resourceVersion": "3"}}})"
      "\n";
  script({{200, codec::gzip(event), {{"Content-Encoding", "gzip"}}}});
  const auto watch = client().watch(ctx_, kMaps, {.resource_version = "1"});
  ASSERT_TRUE(watch.ok()) << watch.error();
  EXPECT_FALSE(seen_.back().find("Accept-Encoding"));
  EXPECT_EQ((*watch)->next().value()->resource_version, "3");
  EXPECT_FALSE((*watch)->next().value());
}

TEST_F(AnswersTest, RefusedTokenIsReadAgainAndRetriedOnce) {
  std::string in_file = "old";
  const auto with = client({.token_source = [] { return std::string("old"); },
                            .token_again = [&](const std::string&) { return in_file; }});
  script({{401, "{}"}, {200, list_of(1)}});
  EXPECT_EQ(list(with).error().code(), Code::kUnauthenticated) << "the file holds the same";
  EXPECT_EQ(seen_.size(), 1u);

  in_file = "new";
  script({{401, "{}"}, {200, list_of(1)}});
  EXPECT_TRUE(list(with).ok());
  EXPECT_EQ(seen_.back().find("Authorization"), "Bearer new");

  script({{401, "{}"}});
  seen_.clear();
  EXPECT_EQ(list(with).error().code(), Code::kUnauthenticated);
  EXPECT_EQ(seen_.size(), 2u) << "once, not for ever";

  script({{401, "{}"}, {200, ""}});
  EXPECT_TRUE(with.watch(ctx_, kMaps, {.resource_version = "1"}).ok());
}

TEST_F(AnswersTest, RequestIsRetriedAfterRetryAfterUpToALimit) {
  const auto patient = client({.waits_max = 3});
  const auto later = [](int status, const char* after) {
    return Scripted{
        status,
        R"({"kind": "Status", "code": 429, "reason": "TooManyRequests", "message": "later"})",
        {{"Retry-After", after}}};
  };
  struct Case {
    const char* name;
    std::deque<Scripted> answers;
    bool succeeds;
    std::size_t requests;
  };
  const Case cases[] = {
      {"too many requests, then not",
       {later(429, "0"), later(429, "0"), {200, list_of(1)}},
       true,
       3},
      {"a fault that passes", {later(503, "0"), later(500, "0"), {200, list_of(1)}}, true, 3},
      {"never", {later(429, "0")}, false, 4},
      {"no time named", {{429, "{}"}, {200, list_of(1)}}, false, 1},
      {"a time nobody understands", {later(429, "soon"), {200, list_of(1)}}, false, 1},
      {"a refusal is no fault", {{403, "{}", {{"Retry-After", "0"}}}, {200, list_of(1)}}, false, 1},
  };
  for (const Case& c : cases) {
    SCOPED_TRACE(c.name);
    seen_.clear();
    script(c.answers);
    EXPECT_EQ(list(patient).ok(), c.succeeds);
    EXPECT_EQ(seen_.size(), c.requests);
  }
  // The wait ends at an earlier deadline, and when the context is stopped.
  script({later(429, "50")});
  const Context soon = Context().with_timeout(std::chrono::seconds(40));
  EXPECT_EQ(patient.list(soon, kMaps).error().code(), Code::kUnavailable);
  EXPECT_FALSE(soon.expired()) << "it said so at once";
  script({later(429, "0"), {200, list_of(1)}});
  EXPECT_FALSE(list(*patient.without_waits()).ok());
  // All waits of one call together have a limit.
  const auto hurried = client({.waits_max = 10, .waits_total = std::chrono::seconds(1)});
  seen_.clear();
  script({later(429, "3600")});
  EXPECT_EQ(list(hurried).error().code(), Code::kUnavailable);
  EXPECT_EQ(seen_.size(), 2u);
  script({later(429, "0"), {200, list_of(1)}});
  EXPECT_FALSE(list(client()).ok()) << "only who is asked to wait does";
}

TEST_F(AnswersTest, InvalidListIsNotTakenForAnEmptyList) {
  const auto plain = client();
  for (const char* body :
       {"{}", "[]", "null", "<html>", "", R"({"kind": "Status", "status": "Success"})",
        R"({"metadata": {}, "items": 5})", R"({"items": []})",
        R"({"metadata": {"resourceVersion": "1"}})"}) {
    script({{200, body}});
    const auto all = list(plain);
    ASSERT_FALSE(all.ok()) << body;
    EXPECT_EQ(all.error().code(), Code::kCorrupt) << body;
  }
  script({{200, R"({"metadata": {"resourceVersion": "1"}, "items": null})"}});
  EXPECT_EQ(list(plain).value().items.size(), 0u);
}

TEST_F(AnswersTest, ExpiredPagesAreListedAgainWithoutPaging) {
  const char* page =
      R"({"metadata": {"resourceVersion": "5", "continue": "t"}, "items": [{"metadata": {"name": "old"}}]})";
  const char* expired =
      R"({"kind": "Status", "code": 410, "reason": "Expired", "metadata": {"continue": "inconsistent"}})";
  script({{200, page}, {410, expired}, {200, list_of(3)}});
  const List all = list(client()).value();
  EXPECT_EQ(all.items.size(), 3u);
  EXPECT_EQ(all.resource_version, "9");
  EXPECT_EQ(targets_.at(1), "/api/v1/configmaps?limit=2&continue=t");
  EXPECT_EQ(targets_.at(2), "/api/v1/configmaps");
  script({{410, expired}});
  EXPECT_EQ(list(client()).error().code(), Code::kGone);
}

TEST_F(AnswersTest, MetricsUseTheNamesAndLabelsOfClientGo) {
  script({{429, "{}", {{"Retry-After", "0"}}}, {200, list_of(1)}});
  EXPECT_TRUE(list(client({.waits_max = 1})).ok());
  const std::string text = registry_.text();
  for (const char* line :
       {"rest_client_requests_total{code=\"429\",host=\"api.test:6443\",method=\"GET\"} 1",
        "rest_client_requests_total{code=\"200\",host=\"api.test:6443\",method=\"GET\"} 1",
        "rest_client_request_retries_total{code=\"429\",host=\"api.test:6443\",verb=\"GET\"} 1",
        "rest_client_request_duration_seconds_count{host=\"api.test:6443\",verb=\"GET\"} 2"}) {
    EXPECT_NE(text.find(line), std::string::npos) << line << "\n" << text;
  }
}

}  // namespace answers_test
}  // namespace varda::kube
