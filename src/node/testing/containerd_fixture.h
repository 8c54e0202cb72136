// The containerd driver over an in-memory runtime, with restarts of the runner.
#pragma once

#include <chrono>
#include <filesystem>
#include <gtest/gtest.h>
#include <memory>
#include <optional>
#include <stdlib.h>
#include <string>

#include "base/testing/eventually.h"
#include "node/containerd_driver.h"
#include "node/testing/fake_runtime.h"

namespace varda::node::testing {

class ContainerdTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = ::testing::TempDir() + "containerd_test_XXXXXX";
    ASSERT_NE(::mkdtemp(pattern.data()), nullptr);
    root_ = pattern;
    life();
  }
  void TearDown() override {
    driver_.reset();
    std::filesystem::remove_all(root_);
  }
  /// Simulates a restart of the runner's process.
  void life() {
    driver_.reset();
    driver_ = make_containerd_driver({.root = root_, .poll_period = std::chrono::milliseconds(5)},
                                     runtime_.client());
  }
  static ContainerConfig config(const std::string& container = "c", int attempt = 0) {
    ContainerConfig out;
    out.name = {.pod_uid = "uid-web", .container = container, .attempt = attempt};
    out.image = "web";
    out.pod = {.ns = "default",
               .name = "web",
               .uid = "uid-web",
               .directory = "/pods/web",
               .hostname = "web"};
    out.log = "/pods/web/" + container + ".log";
    out.pod_ip = "10.1.0.1";
    return out;
  }
  Result<std::string> start(const ContainerConfig& config) {
    TRY([[maybe_unused]] const std::string address, driver_->prepare_pod(config.pod));
    return driver_->start(config);
  }
  /// The ContainerConfig that the runtime received for a container.
  std::string sent(const ContainerConfig& config) {
    const auto id = start(config);
    return id.ok() ? runtime_.containers().at(*id).config : "";
  }
  ContainerExit wait_exit(const std::string& id, const ContainerName& name) {
    std::optional<ContainerExit> exit;
    EXPECT_TRUE(eventually("container " + id + " has ended", [&] {
      exit = driver_->poll(id, name);
      return exit.has_value();
    }));
    return exit.value_or(ContainerExit{});
  }

  std::filesystem::path root_;
  FakeRuntime runtime_;
  std::unique_ptr<Driver> driver_;
};

}  // namespace varda::node::testing
