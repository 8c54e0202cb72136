// One job from the first round to the files of the result, on a desk or in a pod.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "aggregator/coordinator.h"
#include "aggregator/flower_rounds.h"
#include "aggregator/service.h"
#include "base/context.h"
#include "base/metrics.h"
#include "base/result.h"
#include "federated/settings.h"
#include "flower/adapter.h"
#include "net/grpc_server.h"
#include "net/server.h"
#include "os/file_system.h"
#include "worker/model_directory.h"

namespace varda::aggregate {

struct JobOptions {
  os::Path model;  // file or directory
  os::Path directory;
  federated::Settings settings;
  std::string job;  // "": a random name
  std::string listen, admin;
  std::string flower;  // address for Flower clients; "": none
  /// Names Flower clients, which then may use the address `listen`, too. Null: they may not.
  std::function<Result<std::string>(const net::Peer&)> flower_name;
  std::int64_t clients_expected = 0;
  std::size_t threads = 1;
  Duration lost_after = std::chrono::seconds(90);
  aggregator::Coordinator::Options::Admission admission =
      aggregator::Coordinator::Options::Admission::kOpen;
  aggregator::Service::ClientOf client_of;
  std::function<void(net::Server::Options&)> configure_server;  // may be null
};

/// A job with its server.
class Job {
 public:
  /// Reads the model, opens the directory and listens. kInvalid: the model or the settings.
  static Result<std::unique_ptr<Job>> open(JobOptions options, os::FileSystem& fs);
  ~Job();

  aggregator::Coordinator& coordinator() { return *coordinator_; }
  const worker::ModelSource& source() const { return source_; }
  /// The file of the result in the directory.
  std::string model_file() const { return model_->file_name(); }
  const std::string& format() const { return model_->format(); }
  std::string address() const { return server_->address(); }
  std::string admin_address() const { return admin_ ? admin_->address() : ""; }
  std::string flower_address() const { return flower_server_ ? flower_server_->address() : ""; }
  /// Runs the rounds, and writes the result into the directory. kCancelled: the context; the next
  /// start continues. Other errors: the job failed.
  Status run(const Context& ctx);
  /// Clients learn that the job has ended. Returns when all of them know, or after `grace`.
  void dismiss(const Context& ctx, Duration grace);

 private:
  Job() = default;
  Status write_result();
  Status serve_flower();
  net::Response admin(const net::Request& request);

  JobOptions options_;
  os::FileSystem* fs_ = nullptr;
  worker::ModelSource source_;
  std::unique_ptr<aggregator::ModelFile> model_;
  metrics::Registry metrics_;
  std::unique_ptr<aggregator::Coordinator> coordinator_;
  std::unique_ptr<aggregator::Service> service_;
  std::unique_ptr<aggregator::JobMetrics> job_metrics_;
  std::unique_ptr<net::Server> server_, admin_;
  std::unique_ptr<aggregator::FlowerRounds> flower_rounds_;
  std::unique_ptr<flower::Adapter> flower_;
  std::unique_ptr<net::GrpcServer> flower_server_;
};

/// The header Varda-Client, or kUnauthenticated.
Result<std::string> client_of_header(const net::Request& request);

/// The snapshot for /status and for people's scripts.
codec::Json status_json(const aggregator::Snapshot& snapshot);

}  // namespace varda::aggregate
