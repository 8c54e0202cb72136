// The cost of tiers: a model as the first of two tiers. References are the same model alone, and
// the second tier called directly.
//
// All servers run concurrently. The rounds of all contenders alternate, so that a busy moment of
// the machine affects all equally. One client sends one request at a time over loopback: no network
// delay hides the servers' time.
#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "codec/json.h"
#include "joint/model.h"
#include "oip/client.h"
#include "oip/images.h"
#include "os/file_system.h"
#include "os/process.h"
#include "support/report.h"
#include "support/wire.h"

namespace varda::bench {
namespace {

namespace fs = std::filesystem;

constexpr int kWarmup = 50;

template <typename T>
T need(Result<T> result, const char* what) {
  if (!result.ok()) die(std::string(what) + ": " + result.error().message());
  return std::move(result).value();
}

// A temporary directory, removed by the destructor.
class Scratch {
 public:
  Scratch() {
    std::string name = (fs::temp_directory_path() / "bench.XXXXXX").string();
    if (::mkdtemp(name.data()) == nullptr) die("no temporary directory");
    path_ = name;
  }
  ~Scratch() { fs::remove_all(path_); }
  const fs::path& path() const { return path_; }

 private:
  fs::path path_;
};

// Fills a version's directory: with model files, or with a generated graph.
using Fill = std::function<void(const fs::path& version)>;

Fill files_of(const char* digits) {
  return [=](const fs::path& version) {
    fs::copy(std::string(VARDA_DIGITS "/models/") + digits, version);
  };
}

Fill products(int size, int count) {
  return [=](const fs::path& version) {
    fs::create_directories(version);
    std::ofstream(version / "model.onnx", std::ios::binary) << matmul_model(size, count);
  };
}

// Runs varda-serve beside this program, over one model "m".
class Server {
 public:
  Server(const Fill& fill, const std::string& joint = "") {
    const fs::path model = scratch_.path() / "models" / "m";
    fs::create_directories(model);
    fill(model / "1");
    if (!joint.empty()) std::ofstream(model / "joint.json") << joint;
    os::ProcessOptions options;
    options.program = (os::self_path().parent_path() / "varda-serve").string();
    options.arguments = {"--model-repository",
                         model.parent_path().string(),
                         "--http",
                         "127.0.0.1:0",
                         "--drain-delay",
                         "0"};
    if (const char* library = std::getenv("VARDA_ONNXRUNTIME"))
      options.environment["VARDA_ONNXRUNTIME"] = library;
    options.standard_output = scratch_.path() / "log";
    options.die_with_parent = true;
    process_ = need(os::real_processes().start(options), "varda-serve");
    for (int i = 0; i < 6000 && port_ == 0; ++i) {
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
      const std::string log =
          os::read_file(os::real_file_system(), scratch_.path() / "log").value_or("");
      const std::size_t at = log.find("http=127.0.0.1:");
      if (at != std::string::npos && log.find("model version serves") != std::string::npos)
        port_ = std::atoi(log.c_str() + at + 15);
    }
    if (port_ == 0)
      die("varda-serve does not serve: " +
          os::read_file(os::real_file_system(), scratch_.path() / "log").value_or(""));
  }
  ~Server() {
    (void)os::signal_process(process_, SIGTERM, true);
    (void)os::wait_for_exit(Context::background().with_timeout(std::chrono::seconds(20)), process_);
  }
  int port() const { return port_; }
  std::string url() const { return "http://127.0.0.1:" + std::to_string(port_); }

 private:
  Scratch scratch_;
  os::ProcessId process_;
  int port_ = 0;
};

std::string joint_file(const std::string& policy, const std::string& parameters,
                       const std::string& url) {
  return R"({"version":1,"service":"bench/m","deadlineMs":10000,"inFlightMax":64,"tiers":[{"name":"edge","policy":{"name":")" +
         policy + R"(","parameters":)" + parameters + R"(}},{"name":"cloud","url":")" + url +
         R"(","model":"m"}]})";
}

// An inference request, binary in both directions.
std::string http_request(const std::string& input, const tensor::Tensor& tensor) {
  oip::InferRequest request;
  request.inputs = {{input, tensor}};
  request.encoding = oip::Encoding::kBinary;
  const oip::Message message = oip::write_infer_request(request);
  return "POST /v2/models/m/infer HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: "
         "application/octet-stream\r\n" +
         std::string(oip::kJsonLengthHeader) + ": " + std::to_string(*message.json_length) +
         "\r\nContent-Length: " + std::to_string(message.body.size()) + "\r\n\r\n" + message.body;
}

struct Contender {
  std::string name;
  std::unique_ptr<Server> server;
  std::string tier;  // expected answering tier; "": no tiers
  std::unique_ptr<Wire> wire;
  std::vector<double> microseconds;
};

struct Figures {
  std::vector<double> p50, p99;  // microseconds, by contender
};

class Race {
 public:
  Race(std::string request, int rounds, int calls)
      : request_(std::move(request)), rounds_(rounds), calls_(calls) {}

  const Server& add(std::string name, std::unique_ptr<Server> server, std::string tier) {
    contenders_.push_back({std::move(name), std::move(server), std::move(tier), nullptr, {}});
    return *contenders_.back().server;
  }

  Figures run() {
    for (Contender& contender : contenders_) {
      contender.wire = std::make_unique<Wire>(contender.server->port(), Security::kPlain);
      for (int i = 0; i < kWarmup; ++i) (void)contender.wire->exchange(request_, 200);
      const std::string_view answer = contender.wire->exchange(request_, 200);
      const bool right =
          contender.tier.empty()
              ? answer.find("\"tier\":") == std::string_view::npos
              : answer.find("\"tier\":\"" + contender.tier + "\"") != std::string_view::npos &&
                    answer.find("\"fallback\"") == std::string_view::npos;
      if (!right) die(contender.name + ": answered by another tier than it is about");
    }
    for (int round = 0; round < rounds_; ++round) {
      for (Contender& contender : contenders_) {
        for (int i = 0; i < calls_; ++i) {
          const SteadyTime start = system_clock().now();
          (void)contender.wire->exchange(request_, 200);
          contender.microseconds.push_back(
              std::chrono::duration<double, std::micro>(system_clock().now() - start).count());
        }
      }
    }
    Figures out;
    for (const Contender& contender : contenders_) {
      out.p50.push_back(percentile(contender.microseconds, 0.5));
      out.p99.push_back(percentile(contender.microseconds, 0.99));
    }
    return out;
  }

 private:
  const std::string request_;
  const int rounds_;
  const int calls_;
  std::vector<Contender> contenders_;
};

// Contenders: the little model alone, the same as a first tier that always keeps or always
// forwards, and the big model.
void measure(Report& report, const std::string& what, const Fill& little, const Fill& big,
             const std::string& request, int rounds, int calls, bool aims_above) {
  Race race(request, rounds, calls);
  const std::string url = race.add("cloud, directly", std::make_unique<Server>(big), "").url();
  race.add("edge, without tiers", std::make_unique<Server>(little), "");
  const std::string never = R"({"threshold_cross_entropy":"0"})",
                    always = R"({"threshold_cross_entropy":"1"})";
  race.add("joint, kept", std::make_unique<Server>(little, joint_file("CrossEntropy", never, url)),
           "edge");
  race.add("joint, passed on before inference",
           std::make_unique<Server>(little, joint_file("CloudOnly", "{}", url)), "cloud");
  race.add("joint, passed on after it",
           std::make_unique<Server>(little, joint_file("CrossEntropy", always, url)), "cloud");
  const Figures figures = race.run();
  const auto at = [&](const char* share, const std::vector<double>& of, bool aims) {
    // For a slow model the figure would measure the model.
    if (!aims_above) {
      report.add({.what = what + ": the edge answers, " + share,
                  .measured = of[2],
                  .reference = of[1],
                  .unit = "µs",
                  .against = "the same without tiers",
                  .ratio = of[2] / of[1],
                  .aim = aims ? "≤ +30 µs" : "",
                  .met = of[2] - of[1] <= 30});
    }
    for (const std::size_t i : {std::size_t{3}, std::size_t{4}}) {
      report.add({.what = what + ": the cloud answers, " +
                          (i == 3 ? "passed on before inference, " : "after it, ") + share,
                  .measured = of[i],
                  .reference = of[0],
                  .unit = "µs",
                  .against = "the cloud, directly",
                  .ratio = of[i] / of[0],
                  .aim = aims && aims_above ? "≤ 1.15x" : "",
                  .met = of[i] / of[0] <= 1.15});
    }
  };
  at("p50", figures.p50, true);
  at("p99", figures.p99, false);
}

int run(int argc, char** argv) {
  const std::string json = argc == 3 && std::string(argv[1]) == "--json" ? argv[2] : "";
  Report report("joint");
  const std::string file = need(
      os::read_file(os::real_file_system(), VARDA_DIGITS "/test-images.idx3-ubyte"), "test images");
  const oip::Images images = need(oip::parse_images(file), "test images");
  const tensor::Tensor digit =
      need(oip::image_tensor(images, 0, 1, {"images", tensor::DType::kFp32, {-1, 8, 8}}), "image");
  measure(report, "digits", files_of("small"), files_of("big"), http_request("images", digit), 30,
          200, false);

  constexpr int kSize = 1024, kProducts = 96;
  const tensor::Tensor row =
      need(tensor::Tensor::allocate(tensor::DType::kFp32, {1, kSize}), "row");
  measure(report, std::to_string(kProducts) + " products of 1,024²", products(kSize, 1),
          products(kSize, kProducts), http_request("x", row), 300, 1, true);
  report.note(
      "The digits take the cloud's server less time than any hop does, so that their ratios above "
      "it are those of one HTTP request "
      "to two:\n"
      "watched, not aimed at. A model of several milliseconds is what a cloud is asked for.");
  report.print(json);
  return 0;
}

}  // namespace
}  // namespace varda::bench

int main(int argc, char** argv) { return varda::bench::run(argc, argv); }
