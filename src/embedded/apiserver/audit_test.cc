// The audit log: content of events, data that must stay out, and that no request waits for it.
#include "apiserver/audit.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sstream>
#include <sys/stat.h>
#include <unistd.h>

#include "apiserver/server.h"
#include "net/http.h"
#include "os/testing/memory_file_system.h"
#include "store/store.h"

namespace varda::apiserver {
namespace {

using codec::Json;
using ::testing::HasSubstr;
using ::testing::Not;

class Audit : public ::testing::Test {
 protected:
  void start(AuditLog::Options options) {
    options.file = "/log/audit.jsonl";
    options.metrics = &metrics_;
    ASSERT_TRUE(fs_.make_directories("/log", 0755).ok());
    audit_ = AuditLog::open(fs_, std::move(options)).value();
    server_ = Server::create({.store = store_.get(), .audit = audit_.get(), .controllers = false})
                  .value();
    client_ = net::loopback(server_->handler_as({"alice", {"system:masters"}}));
  }
  int send(std::string method, std::string path, std::string body = "",
           std::string type = "application/json") {
    net::ClientRequest request{
        .method = std::move(method), .url = std::move(path), .body = std::move(body)};
    request.headers.add("Content-Type", std::move(type));
    request.headers.add("User-Agent", "test/1");
    return client_->call(Context::background(), std::move(request)).value().status;
  }
  std::string text(const std::string& suffix = "") {
    audit_->flush();
    return os::read_file(fs_, "/log/audit.jsonl" + suffix).value();
  }
  std::vector<Json> events() {
    std::vector<Json> out;
    std::istringstream lines(text());
    for (std::string line; std::getline(lines, line);)
      out.push_back(codec::parse_json(line).value());
    return out;
  }

  metrics::Registry metrics_;
  os::testing::MemoryFileSystem fs_;
  std::unique_ptr<store::Store> store_ = store::open_memory();
  std::unique_ptr<AuditLog> audit_;
  std::unique_ptr<Server> server_;
  std::unique_ptr<net::HttpClient> client_;
};

constexpr const char* kMaps = "/api/v1/namespaces/default/configmaps";

TEST_F(Audit, EventNamesCallerRequestAndOutcome) {
  start({});
  EXPECT_EQ(send("POST", kMaps, R"({"metadata":{"name":"a"},"data":{"k":"v"}})"), 201);
  EXPECT_EQ(send("GET", std::string(kMaps) + "/b"), 404);
  EXPECT_EQ(send("GET", "/readyz"), 200);  // probes are not logged
  EXPECT_EQ(send("GET", "/apis"), 200);
  const std::vector<Json> all = events();
  ASSERT_EQ(all.size(), 3u);
  const Json& made = all[0];
  EXPECT_EQ(made["kind"].as_string() + made["apiVersion"].as_string(), "Eventaudit.k8s.io/v1");
  EXPECT_EQ(made["level"].as_string(), "Metadata");
  EXPECT_EQ(made["stage"].as_string(), "ResponseComplete");
  EXPECT_EQ(made["verb"].as_string(), "create");
  EXPECT_EQ(made["requestURI"].as_string(), kMaps);
  EXPECT_EQ(made.at("user/username").as_string(), "alice");
  EXPECT_EQ(made.at("user/groups").as_array()[0].as_string(), "system:masters");
  EXPECT_EQ(made["sourceIPs"].as_array()[0].as_string(), "127.0.0.1");
  EXPECT_EQ(made["userAgent"].as_string(), "test/1");
  EXPECT_EQ(made.at("objectRef/resource").as_string(), "configmaps");
  EXPECT_EQ(made.at("objectRef/namespace").as_string(), "default");
  EXPECT_EQ(made.at("responseStatus/code").as_integer(), 201);
  EXPECT_LE(made["requestReceivedTimestamp"].as_string(), made["stageTimestamp"].as_string());
  EXPECT_EQ(made.find("requestObject"), nullptr);
  EXPECT_EQ(all[1].at("objectRef/name").as_string(), "b");
  EXPECT_EQ(all[1].at("responseStatus/reason").as_string(), "NotFound");
  EXPECT_EQ(all[2].find("objectRef"), nullptr);
  EXPECT_NE(made["auditID"].as_string(), all[1]["auditID"].as_string());
  EXPECT_EQ(fs_.stat("/log/audit.jsonl").value()->mode, 0600u);
}

TEST_F(Audit, RequestLevelLogsBodiesExceptThoseOfSecrets) {
  start({.level = AuditLevel::kRequest});
  const std::string secrets = "/api/v1/namespaces/default/secrets";
  EXPECT_EQ(send("POST", kMaps, "metadata: {name: a}\ndata: {k: told}\n", "application/yaml"), 201);
  EXPECT_EQ(send("POST", secrets, R"({"metadata":{"name":"s"},"stringData":{"p":"hidden-1"}})"),
            201);
  EXPECT_EQ(send("PATCH", secrets + "/s", R"({"stringData":{"p":"hidden-2"}})",
                 "application/merge-patch+json"),
            200);
  EXPECT_EQ(send("POST", secrets, R"({"metadata":{"name":"hidden-3!"}})"), 422);
  EXPECT_EQ(
      send("POST", kMaps,
           R"({"metadata":{"name":"big"},"data":{"k":")" + std::string(300'000, 'x') + "\"}}"),
      201);
  const std::string all = text();
  EXPECT_THAT(all, HasSubstr(R"("requestObject":{"metadata":{"name":"a"},"data":{"k":"told"}})"));
  EXPECT_THAT(all, Not(HasSubstr("hidden")));
  EXPECT_THAT(all, HasSubstr("omitted: 300"));
  EXPECT_EQ(events()[1]["level"].as_string(), "Metadata");
}

TEST_F(Audit, BodiesOfRejectedRequestsAreNotLogged) {
  start({.level = AuditLevel::kRequest});
  const auto tokens = token_authenticator(
      {{.token = "node", .identity = {.name = "system:node:a", .groups = {"system:nodes"}}},
       {.token = "admin", .identity = {.name = "root", .groups = {"system:masters"}}}});
  const auto rules = node_authorizer();
  server_ = Server::create({.store = store_.get(),
                            .authenticator = tokens.get(),
                            .authorizer = rules.get(),
                            .audit = audit_.get(),
                            .controllers = false})
                .value();
  client_ = net::loopback(server_->handler());
  struct Case {
    const char *path, *token, *as;
    int status;
  };
  const std::string secrets = "/api/v1/namespaces/default/secrets";
  for (const Case& one :
       {Case{secrets.c_str(), "", "", 401}, Case{secrets.c_str(), "wrong", "", 401},
        Case{kMaps, "wrong", "", 401}, Case{secrets.c_str(), "node", "", 403},
        Case{secrets.c_str(), "node", "bob", 403}, Case{kMaps, "node", "", 403},
        Case{"/api/v1/namespaces/default/secret", "admin", "", 404},
        Case{kMaps, "admin", "", 400}}) {
    net::ClientRequest request{
        .method = "POST",
        .url = one.path,
        .body =
            R"({"kind":"Secret","apiVersion":"v1","metadata":{"name":"s"},"stringData":{"p":"hidden"}})"};
    request.headers.add("Content-Type", "application/json");
    request.headers.add("Authorization", "Bearer " + std::string(one.token));
    if (*one.as != 0) request.headers.add("Impersonate-User", one.as);
    EXPECT_EQ(client_->call(Context::background(), std::move(request)).value().status, one.status)
        << one.path << " " << one.token;
  }
  EXPECT_EQ(events().size(), 8u);
  EXPECT_THAT(text(), Not(HasSubstr("hidden")));
  EXPECT_THAT(text(), Not(HasSubstr("Bearer")));
}

TEST_F(Audit, LevelNoneWritesNothing) {
  start({.level = AuditLevel::kNone});
  EXPECT_EQ(send("GET", kMaps), 200);
  EXPECT_EQ(text(), "");
}

TEST_F(Audit, FilesAreBoundedInSizeAndNumber) {
  start({.bytes_max = 4000, .files_max = 2});
  for (int i = 0; i < 60; ++i) {
    EXPECT_EQ(send("GET", kMaps), 200);
    audit_->flush();
  }
  EXPECT_LE(text().size(), 4000u);
  for (const char* suffix : {".1", ".2"}) {
    const std::string old = text(suffix);
    EXPECT_LE(old.size(), 4000u);
    EXPECT_GT(old.size(), 1000u);
    EXPECT_EQ(old.back(), '\n');
  }
  EXPECT_FALSE(fs_.stat("/log/audit.jsonl.3").value().has_value());
  EXPECT_LT(text(".2").substr(text(".2").find("stageTimestamp")),
            text(".1").substr(text(".1").find("stageTimestamp")));
}

TEST_F(Audit, RestartAppendsToTheSameFile) {
  start({});
  EXPECT_EQ(send("GET", kMaps), 200);
  client_.reset();
  server_.reset();
  audit_.reset();
  {
    auto file = fs_.open("/log/audit.jsonl", os::Open::kCreate, 0600).value();
    ASSERT_TRUE(file->seek(file->size().value()).ok());
    ASSERT_TRUE(file->write(R"({"kind":"Event","half)").ok());  // killed mid-line
  }
  start({});
  EXPECT_EQ(send("GET", kMaps), 200);
  EXPECT_EQ(events().size(), 2u);
}

TEST_F(Audit, FileThatIsNoAuditLogIsNotChanged) {
  const std::string text = "port: 80\nno newline at its end";
  ASSERT_TRUE(os::write_file_atomically(fs_, "/notes", text, 0644).ok());
  EXPECT_EQ(AuditLog::open(fs_, {.file = "/notes"}).error().code(), Code::kInvalid);
  EXPECT_EQ(os::read_file(fs_, "/notes").value(), text);
  EXPECT_EQ(fs_.stat("/notes").value()->mode, 0644u);

  const os::Path pipe = ::testing::TempDir() + "audit-pipe-" + std::to_string(::getpid());
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0644), 0);
  const auto before = os::real_file_system().stat(pipe).value()->mode;
  EXPECT_EQ(AuditLog::open(os::real_file_system(), {.file = pipe}).error().code(), Code::kInvalid);
  EXPECT_EQ(os::real_file_system().stat(pipe).value()->mode, before);
  EXPECT_EQ(::unlink(pipe.c_str()), 0);
}

TEST_F(Audit, FullDiskDropsEventsButServesRequests) {
  start({});
  EXPECT_EQ(send("GET", kMaps), 200);
  audit_->flush();
  fs_.set_capacity(text().size() + 100);
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(send("GET", kMaps), 200);
    audit_->flush();
  }
  EXPECT_THAT(metrics_.text(), HasSubstr("apiserver_audit_error_total 3\n"));
  fs_.set_capacity(1u << 30);
  EXPECT_EQ(send("GET", kMaps), 200);
  EXPECT_EQ(events().size(), 2u);  // no partial lines
  EXPECT_THAT(metrics_.text(), HasSubstr("apiserver_audit_event_total 2\n"));
}

TEST(AuditLevelName, UnknownLevelIsRefused) {
  EXPECT_EQ(parse_audit_level("Request").value(), AuditLevel::kRequest);
  EXPECT_EQ(parse_audit_level("request").error().code(), Code::kInvalid);
}

}  // namespace
}  // namespace varda::apiserver
