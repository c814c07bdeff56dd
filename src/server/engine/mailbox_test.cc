#include "src/server/engine/mailbox.h"

#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace ebb::server {
namespace {

using ::testing::HasSubstr;

const auto kNow = std::chrono::steady_clock::time_point();  // in the past: Take() does not wait

std::vector<Job> Jobs(std::initializer_list<JobId> ids) {
  std::vector<Job> jobs;
  for (const JobId id : ids) jobs.emplace_back().id = id;
  return jobs;
}

TEST(MailboxTest, MessagesComeInTheOrderInWhichTheyWerePosted) {
  Mailbox mailbox(4);
  ASSERT_TRUE(mailbox.Submit(Jobs({1})).ok());
  mailbox.Post(CancelJob{1});
  ASSERT_TRUE(mailbox.Submit(Jobs({2})).ok());
  mailbox.Post(DiscardSession{7});
  const Mailbox::Delivery delivery = mailbox.Take({});
  ASSERT_EQ(delivery.messages.size(), 4u);
  EXPECT_FALSE(delivery.is_stopped);
  EXPECT_EQ(std::get<Job>(delivery.messages[0]).id, 1u);
  EXPECT_EQ(std::get<CancelJob>(delivery.messages[1]).id, 1u);
  EXPECT_EQ(std::get<Job>(delivery.messages[2]).id, 2u);
  EXPECT_EQ(std::get<DiscardSession>(delivery.messages[3]).resting, 7u);
  EXPECT_TRUE(mailbox.Take(kNow).messages.empty());
}

TEST(MailboxTest, TakenJobsCountAsWaitingUntilTheEngineSaysOtherwise) {
  Mailbox mailbox(3);
  ASSERT_TRUE(mailbox.Submit(Jobs({1, 2})).ok());
  EXPECT_EQ(mailbox.Take({}).messages.size(), 2u);
  const Status full = mailbox.Submit(Jobs({3, 4}));
  EXPECT_EQ(full.code(), StatusCode::kQueueFull);
  EXPECT_EQ(full.message(), "the queue is full: 2 requests are waiting");
  ASSERT_TRUE(mailbox.Submit(Jobs({3})).ok());
  mailbox.SetWaiting(0);
  ASSERT_TRUE(mailbox.Submit(Jobs({4, 5})).ok());
  EXPECT_FALSE(mailbox.Submit(Jobs({6})).ok());
}

TEST(MailboxTest, MoreJobsThanCanEverWaitAreAnInvalidArgument) {
  Mailbox mailbox(2);
  const Status status = mailbox.Submit(Jobs({1, 2, 3}));
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(status.field(), "n");
  EXPECT_THAT(status.message(), HasSubstr("expected at most 2 answers to all prompts together"));
}

TEST(MailboxTest, StopDeliversWhatWasPostedAndRefusesJobs) {
  Mailbox mailbox(2);
  ASSERT_TRUE(mailbox.Submit(Jobs({1})).ok());
  mailbox.Stop();
  EXPECT_EQ(mailbox.Submit(Jobs({2})).code(), StatusCode::kCancelled);
  const Mailbox::Delivery delivery = mailbox.Take({});
  EXPECT_TRUE(delivery.is_stopped);
  ASSERT_EQ(delivery.messages.size(), 1u);
  EXPECT_TRUE(mailbox.Take({}).is_stopped);
}

TEST(MailboxTest, TakeWaitsForAMessage) {
  Mailbox mailbox(1);
  std::thread other([&mailbox] { mailbox.Post(EndJobThought{5}); });
  const Mailbox::Delivery delivery = mailbox.Take({});
  other.join();
  ASSERT_EQ(delivery.messages.size(), 1u);
  EXPECT_EQ(std::get<EndJobThought>(delivery.messages[0]).id, 5u);
}

}  // namespace
}  // namespace ebb::server
