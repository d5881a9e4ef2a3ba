"""A replica's tables: topics, groups, offsets and delay progress, copied from its master.

Owns the interval of copying, the order of requests (RocketMQ: SlaveSynchronize), the fence against
late answers, and the changes of the tables with the role. It opens no connection: a function sends
the requests.

    follow(address, epoch)   a master is known: copy at once, then every few seconds
    tick(...)                send the requests that are due
    lead(epoch)              this broker is the master: before it takes the first message
    on_truncated()              the log was cut: no table may refer to the removed part
    link_changed()           earlier answers of the master may be from another process
    stop()                   no master, or the broker stops

Law 7: nothing goes back. Tables are merged by version (term, then changes); entries are removed
only if the master is known to have had them. An answer counts only in the term in which it was
requested; a later one is dropped.
"""

import logging
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any, Final

from turbopump.broker.auth.copies import COPY, read_copy, version_text
from turbopump.broker.auth.table import FullAuthTable
from turbopump.broker.context import BrokerContext
from turbopump.broker.ha.metadata import answers as answers
from turbopump.broker.ha.metadata.following import (
    CountedLog,
    Following,
    Versioned,
    is_continued,
    version_to_keep,
)
from turbopump.broker.pop.acting_journal import TAKES_NOTES
from turbopump.broker.scheduled.delay import read_progress
from turbopump.broker.tables.assignment_store import VERSION, StoredAssignment, read_assignments
from turbopump.broker.tables.data_versions import VersionRules, is_older
from turbopump.broker.tables.offsets import FILE_NAME as OFFSETS_FILE
from turbopump.broker.tables.offsets import Offsets
from turbopump.engine.deferred import Deferred
from turbopump.engine.types import LONG_AGO_MS, LogOffset, StoreError
from turbopump.net.transport.calls import Call
from turbopump.net.wire import bodies
from turbopump.net.wire.bodies import BadBody
from turbopump.net.wire.codes import RequestCode, ResponseCode
from turbopump.net.wire.command import Command, new_request
from turbopump.net.wire.groups import SubscriptionGroupConfig
from turbopump.net.wire.topics import DataVersion, TopicConfig

logger = logging.getLogger(__name__)

PERIOD_MS: Final = 3_000
"""Interval between two rounds, in ms (RocketMQ: a check each 3 s, a full copy each 10 or 60 s)."""
PERIOD_OF_MIB_MS: Final = 3_000
"""Additional interval in ms for each MiB of a round: reading one takes some 20 ms of two loops."""
MAX_PERIOD_MS: Final = 60_000
"""Maximum interval in ms."""
FIRST_RETRY_MS: Final = 500
"""Pause in ms after a failed round, doubled up to MAX_RETRY_MS: short for a master that has just
restarted, long for a dead one."""
MAX_RETRY_MS: Final = 10_000
"""Maximum pause in ms after a failed round."""
DELETE_AGAIN_MS: Final = 10_000
"""Pause in ms after a failed deletion before the next try."""
TIMEOUT_MS: Final = 5_000
"""Time-out of a request in ms (RocketMQ: 3 to 5 s)."""


class MetadataFollower:
    """Copies the tables of its master to a replica: topics, groups, offsets and progress of
    deliveries, every few seconds; changes them when this broker becomes the master. Loop thread
    only; times are in ms of the monotonic clock, but `now_ms` is of the wall clock (ms since
    1970)."""

    def __init__(
        self,
        broker: BrokerContext,
        call: Call,
        queue_end: Callable[[str, int], int] | None = None,
        log: CountedLog | None = None,
        pause: Callable[[], Deferred[None]] | None = None,
    ) -> None:
        """`queue_end` returns the queue offset after the last message of a topic's queue, by all
        records of the log; by default the store's. `log` (engine.replicated.Replicated) may need
        counts of queues that it has no records of. `pause` resolves after the loop has served
        others; by default there is no pause between two steps."""
        self.error = ""
        """Reason why the last round was incomplete; "" if it was complete, or before the first."""
        self.synced_ms = LONG_AGO_MS
        """End of the last complete round whose tables are durable; LONG_AGO_MS before the first."""
        self._broker = broker
        self._call = call
        self._log = log
        self._pause = pause
        self._queue_end = queue_end or broker.store.next_queue_offset
        self._versions = VersionRules()
        self._following: Following | None = None
        self._left = False
        self._deletions: dict[str, LogOffset] = {}
        self._deletion_times: dict[str, int] = {}
        self._deletions_due_ms = self._steady_ms = LONG_AGO_MS
        self._now_ms = broker.started_ms
        for table in self._versioned_tables():
            table.versions = self._versions
        # Deletions reported by the master are handled before those found in the log.
        broker.store.on_unapplied_deletions.insert(0, self._on_unapplied_deletions)

    # Roles

    @property
    def master_address(self) -> str:
        """Address `host:port` of the master that is asked for its tables, "" without a master."""
        return self._following.address if self._following is not None else ""

    def begin_following(self, address: str, epoch: int, steady_ms: int) -> None:
        """Copy the tables of the master that serves clients at `address` ("" if unknown: stop
        copying) in the term `epoch` (0 or less: there are no epochs). The first round is due at
        `steady_ms`; same arguments as before, or a call after `shut_down`, change nothing."""
        if self._left:
            return
        if not self._versions.following:
            self._versions.following = True
            self._broker.delay.durable.begin_following()
            self._broker.timers.begin_following()
        now = self._following
        if now is not None and (now.address, now.epoch) == (address, epoch):
            return
        self._following = None
        self._deletions.clear()
        self._broker.delay.durable.drop_awaited()
        self._broker.timers.durable.drop_awaited()
        if address and address != self._broker.address:
            self._following = Following(address, epoch, due_ms=steady_ms)

    def stop(self) -> None:
        """Stop copying until the next `begin_following`: pending answers are ignored."""
        self._following = None

    def shut_down(self) -> None:
        """Stop copying for good, before the broker stops; deliveries made as master count as far as
        replicas have them."""
        self.stop()
        self._left = True
        self._broker.delay.durable.settle_before_stop()
        self._broker.timers.durable.settle_before_stop()

    def begin_leading(self, epoch: int, now_ms: int) -> Deferred[OSError | None]:
        """Stop copying, and change the tables for a master of `epoch` (0 or less: no epochs), now.
        To be called when the log has changed sides, before it takes a message. Resolves to None
        when the tables are durable, or to the error. Progress beyond the log is removed: its
        offsets will belong to other messages here. Topics that only the log contains are added
        (R20)."""
        self.stop()
        self._apply_deletions(now_ms)
        self._deletions.clear()
        broker, versions = self._broker, self._versions
        versions.following = False
        broker.store.notify_new_lives(now_ms)
        versions.epoch = max(versions.epoch, epoch)
        broker.delay.durable.begin_leading()
        broker.timers.durable.begin_leading()
        self.create_from_store(now_ms)
        set_back = self._clamp_offsets(now_ms)
        for table in self._versioned_tables():
            if table.data_version.state_version < epoch:
                table.bump_version(now_ms)
        if set_back or epoch > 0:
            broker.saver.save_changed(OFFSETS_FILE, broker.offsets.take_content)
        return broker.saver.when_saved()

    def create_from_store(self, now_ms: int) -> None:
        """Add topics that only the log contains (R20) to the table, except topics whose queues are
        being removed; also for a replica that acts for its master."""
        store = self._broker.store
        names = [name for name in store.topics() if name not in store.deletions.in_progress]
        self._broker.topics.create_from_store(
            lambda: {name: max(store.queue_ids(name)) + 1 for name in names}, now_ms, always=True
        )

    def on_truncated(self, now_ms: int) -> int:
        """After a replica's log was cut or restarted, limit the progress of deliveries, and set
        consumer offsets beyond the end back to it; return their number. They are not marked as set
        back: the master's are right, and clients of an acting broker must not go back."""
        self._deletions.clear()
        self._broker.delay.on_truncated()
        self._broker.timers.on_truncated()
        if self._following is not None:
            self._following.offsets = None  # all entries of its next answer are news
            self._following.cuts += 1
        set_back = self._clamp_offsets(now_ms)
        if set_back:
            self._broker.offsets.data_version = DataVersion()
        return set_back

    def _clamp_offsets(self, now_ms: int) -> int:
        """Set consumer offsets beyond the end of their queue back to it; return their number."""
        set_back = self._broker.offsets.clamp_to_ends(self._queue_end, now_ms)
        if set_back:
            logger.warning(
                "%d consumer offsets were beyond the log's end and were set back to it", set_back
            )
        return set_back

    def _versioned_tables(self) -> list[Versioned]:
        """The tables and the progress whose versions depend on the role."""
        broker = self._broker
        deliveries = broker.delay.durable, broker.timers.durable
        users = [broker.users] if broker.users is not None else []
        return [broker.topics, broker.groups, broker.offsets, *deliveries, *users]

    # Interval of copying

    def link_changed(self) -> None:
        """Forget earlier answers after the connection to the master's log was lost or made. Another
        process may answer at its address without unsaved entries of the previous one: these are not
        deletions. A pending request does not count, and is repeated."""
        now = self._following
        if now is not None:
            due_ms = self._broker.steady_ms() if now.busy else now.due_ms
            self._following = Following(
                now.address, now.epoch, failures=now.failures, due_ms=due_ms
            )

    def tick(self, now_ms: int, steady_ms: int) -> None:
        """Begin a round of requests if it is due, and delete queues of topics that the master
        deleted, if this log has reached their end. Called every 100 ms."""
        self._now_ms, self._steady_ms = now_ms, steady_ms
        if steady_ms >= self._deletions_due_ms:
            self._apply_deletions(now_ms)
        now = self._following
        if now is None or now.busy:
            return
        if steady_ms >= now.due_ms or (not now.failures and self._needs_queue_counts(now)):
            now.busy, now.bytes = True, 0
            now.errors.clear()
            self._advance_steps(now, self._copy_tables(now), None)

    def _advance_steps(
        self,
        now: Following,
        steps: answers.Steps[None],
        response: object,
    ) -> None:
        """Run the steps of a round, from `response` on, up to a request or work that is not
        answered yet. A round of an earlier master ends."""
        while True:
            if self._following is not now:
                steps.close()  # another term: pending requests of this one do not count
                return
            if isinstance(response, str):
                now.errors.append(response)
                self._end_round(now, reached=False)
                return
            try:
                if isinstance(response, Command):
                    now.bytes += len(response.body)
                asked = steps.send(response)
            except StopIteration:
                self._end_round(now, reached=True)
                return
            later: Deferred[Any]
            if asked is None:
                if self._pause is None:
                    response = None
                    continue
                later = self._pause()
            elif isinstance(asked, Command):
                later = self._call(now.address, asked, TIMEOUT_MS)
            elif isinstance(asked, Deferred):
                later = asked
            else:
                later = self._broker.saver.run_on_disk_thread(asked)
            if not later.done:
                later.then(partial(self._advance_steps, now, steps))
                return
            response = later.value

    def _end_round(self, now: Following, reached: bool) -> None:
        """End a round: set the time of the next one. `reached`: the master answered, maybe with
        errors."""
        steady_ms = self._broker.steady_ms()
        error = "; ".join(now.errors)
        if error and error != self.error:
            logger.warning("tables of the master %s: %s", now.address, error)
        elif self.error and not error:
            logger.info("the tables of the master %s are followed again", now.address)
        self.error = error
        now.busy = False
        if reached:
            now.failures = 0
            period_ms = PERIOD_MS + PERIOD_OF_MIB_MS * (now.bytes >> 20)
            now.due_ms = steady_ms + min(period_ms, MAX_PERIOD_MS)
            if not error:
                self._broker.saver.when_saved().then(partial(self._on_saved, now, steady_ms))
        else:
            wait_ms = min(FIRST_RETRY_MS << min(now.failures, 10), MAX_RETRY_MS)
            now.failures += 1
            now.due_ms = steady_ms + wait_ms
            # Another process may answer there next: earlier answers are no proof about it.
            now.topics = now.groups = now.offsets = None
            now.shares = ""

    def _on_saved(self, now: Following, at_ms: int, error: OSError | None) -> None:
        """Set `synced_ms`, because the tables of a complete round are durable."""
        if error is None and self._following is now:
            self.synced_ms = at_ms

    # A round

    def _copy_tables(self, now: Following) -> answers.Steps[None]:
        """Copy all tables; a failed table does not keep the others from being copied."""
        parts = (
            self._copy_topics,
            self._copy_groups,  # before the offsets: offsets of a former life are removed here
            self._copy_offsets,
            self._copy_delay,
            self._copy_timers,
            self._copy_modes,
            self._copy_users,
        )
        for part in parts:
            try:
                yield from part(now)
            except (BadBody, StoreError) as error:
                now.errors.append(f"{part.__name__.removeprefix('_copy_')}: {error}")

    def _is_adopted(self, now: Following, mine: DataVersion, theirs: DataVersion) -> bool:
        """Whether all local entries (version `mine`) came from the followed master's own table:
        both versions are of the master's term, and `theirs` is not older."""
        same = theirs.state_version == mine.state_version == now.epoch
        return now.epoch > 0 and same and not is_older(theirs, mine)

    def _needs_queue_counts(self, now: Following) -> bool:
        """Whether the log was restarted, and this master was not asked for queue counts since."""
        log = self._log
        return log is not None and log.needs_queue_counts and now.counts_from != log.min

    def _save_queue_counts(self, table: answers.Table, log_min: LogOffset) -> answers.Steps[None]:
        """Save the queue counts in the master's answer, unless they were requested for another
        begin of the log."""
        log = self._log
        if log is None or not log.needs_queue_counts or log.min != log_min:
            return
        counts = answers.idle_queue_counts(table)
        if counts is None:
            if not answers.may_know_idle_counts(table):
                log.note_counts_unknown()
            return
        error = yield log.save_queue_counts(counts)
        if error is not None:
            raise StoreError(f"the queue counts cannot be saved: {error}") from error

    def _copy_topics(self, now: Following) -> answers.Steps[None]:
        """Copy the topics, and note the topics that the master deleted."""
        wants = self._log is not None and self._log.needs_queue_counts
        now.counts_from = began = self._log.min if self._log is not None else LogOffset(-1)
        table = yield from answers.request_all_topics(wants)
        if wants:
            yield from self._save_queue_counts(table, began)
        topics = self._broker.topics
        mine = topics.all_topics()
        before = self._known_before(now, now.topics, table, topics.data_version, mine)
        before -= topics.only_here
        gone = {name for name in before - table.entries.keys() if name in mine}
        gone = {name for name in gone if not topics.is_system(name)}
        deleted = answers.deleted_of(table)
        if gone - deleted.keys():
            # Ask for the log's end when the topic was surely gone; then ask again for topics, after
            # that.
            end = yield from answers.log_end()
            table = yield from answers.request_all_topics()
            gone -= table.entries.keys()
            deleted = {**dict.fromkeys(gone, end), **answers.deleted_of(table)}
        theirs = answers.topics_of(table)
        if not theirs:
            raise BadBody("the broker has no topics: its table is lost")
        deletions, times = self._broker.store.deletions, answers.deletion_times_of(table)
        former = deletions.former_life_ends()
        # A topic may be deleted twice while nothing is written: the later time counts, and the
        # master's time of a deletion that only the log proved here.
        known = {
            name: 0 if deletions.is_proven(name) else deletions.deleted_ms(name) for name in deleted
        }
        new = {
            name: end
            for name, end in deleted.items()
            if (former.get(name, 0), known[name]) < (end, times.get(name, 0))
        }
        gone |= {name for name in new if name not in table.entries and not topics.is_system(name)}
        result = answers.merge_tables(mine, topics.data_version, theirs, table.version, gone)
        answers.check_topics(result)
        self._broker.offsets.forget_resets(deleted)  # the master's resets replace them
        for name in new:
            self._deletions[name] = new[name]
        self._deletion_times = times
        for name in (gone & mine.keys()) | new.keys():
            self._broker.offsets.remove_topic(name)
            self._broker.statistics.forget_topic(name)
            # for a new life of the topic the master's offsets may look unchanged
            now.offsets = None
        only_here = frozenset(result.keys() - table.entries.keys())
        topics.adopt_topics(
            result, version_to_keep(now, topics.data_version, table.version), only_here
        )
        now.topics = answers.Table(table.version, dict.fromkeys(table.entries), {})
        self._apply_deletions(self._now_ms)

    def _copy_groups(self, now: Following) -> answers.Steps[None]:
        """Copy the groups, their bans and deletions."""
        table = yield from answers.request_all_groups()
        groups = self._broker.groups
        mine, version = groups.all_groups(), groups.data_version
        before = self._known_before(now, now.groups, table, version, mine) - groups.only_here
        gone = {name for name in before - table.entries.keys() if not groups.is_system(name)}
        theirs = answers.groups_of(table)
        if not theirs:
            raise BadBody("the broker has no groups: its table is lost")
        banned = answers.bans_of(table)
        result = answers.merge_tables(mine, version, theirs, table.version, gone)
        answers.check_groups(result)
        answers.check_size(groups, result.values())
        answers.check_groups(banned)
        # A lifted ban is removed: the newer table decides.
        bans = groups.all_forbidden() if is_older(table.version, version) else banned
        only_here = frozenset(result.keys() - table.entries.keys())
        deleted = answers.deleted_groups_of(table)
        for name, at_ms in deleted.items():
            if at_ms > groups.deleted_ms(name):
                self._broker.offsets.remove_group(name)
                now.offsets = None
        groups.adopt_tables(
            result, bans, version_to_keep(now, version, table.version), only_here, deleted
        )
        now.groups = answers.Table(table.version, dict.fromkeys(table.entries), {})

    def _known_before(
        self,
        now: Following,
        earlier: answers.Table | None,
        table: answers.Table,
        version: DataVersion,
        mine: dict[str, TopicConfig] | dict[str, SubscriptionGroupConfig],
    ) -> set[str]:
        """Return the names that this master is known to have had: the names missing in its `table`
        were deleted by it."""
        if earlier is not None and is_continued(now, earlier.version, table.version):
            return set(earlier.entries)
        return set(mine) if self._is_adopted(now, version, table.version) else set()

    def _copy_offsets(self, now: Following) -> answers.Steps[None]:
        """Copy the consumer offsets."""
        may_act = self._broker.config.replication.enable_slave_acting_master
        fields = {TAKES_NOTES: "true"} if may_act else None
        response = yield new_request(RequestCode.GET_ALL_CONSUMER_OFFSET, fields=fields)
        theirs = yield from answers.read(response, Offsets.from_json)
        if may_act:
            self._broker.pop.notes.set_master_takes(master_takes=TAKES_NOTES in response.fields)
        while not (yield from self._adopt_offsets(now, theirs)):
            pass
        # Offsets of topics that are restarted are copied once more, after the deletion.
        now.offsets = None if self._broker.store.deletions.unapplied_deletions() else theirs

    def _adopt_offsets(self, now: Following, theirs: Offsets) -> answers.Steps[bool]:
        """Take over the master's offsets in steps; False if the log was cut meanwhile, so that the
        caller starts again; else True."""
        offsets, cuts = self._broker.offsets, now.cuts
        before, all_adopted = now.offsets, False
        if before is None or not is_continued(now, before.version, theirs.version):
            before, all_adopted = None, self._is_adopted(now, offsets.data_version, theirs.version)
        version = version_to_keep(now, offsets.data_version, theirs.version)
        for _ in offsets.adopt_offsets(replace(theirs, version=version), before, all_adopted):
            yield None
            if now.cuts != cuts:
                return False
        return True

    def _copy_delay(self, now: Following) -> answers.Steps[None]:
        """Copy the progress of delay levels."""
        response = yield new_request(RequestCode.GET_ALL_DELAY_OFFSET)
        progress, version = read_progress(answers.object_of_success(response))
        delay = self._broker.delay
        end, progress = LogOffset(0), delay.progress_to_adopt(progress, version)
        if progress != delay.copy_progress():
            end = yield from answers.log_end()
        delay.durable.adopt_progress(progress, version, end)

    def _copy_timers(self, now: Following) -> answers.Steps[None]:
        """Copy the timers' progress and metrics (60 and 61); a RocketMQ broker without timers
        answers neither."""
        timers = self._broker.timers
        response = yield new_request(RequestCode.GET_TIMER_CHECK_POINT)
        if response.code != ResponseCode.SUCCESS:
            return
        theirs = answers.read_timer_checkpoint(response, self._now_ms)
        if timers.is_behind_master(theirs):
            end = yield from answers.log_end()
            timers.adopt_checkpoint(theirs, end)
        response = yield new_request(RequestCode.GET_TIMER_METRICS)
        timers.metrics.replace_counts(answers.object_of_success(response))

    def _copy_modes(self, now: Following) -> answers.Steps[None]:
        """Copy the request modes of groups and the last assignments of queues (402)."""
        request = new_request(RequestCode.GET_ALL_MESSAGE_REQUEST_MODE)
        request.fields[VERSION] = now.shares
        members, shares = yield from answers.read((yield request), _read_modes)
        self._broker.request_modes.adopt_modes(members)
        if VERSION in members:
            self._broker.assignments.kept.adopt_rows(shares)
            now.shares = bodies.read_text(members, VERSION)

    def _copy_users(self, now: Following) -> answers.Steps[None]:
        """Copy users and policies (3005), if this broker authenticates and shares inner credentials
        with the master; RocketMQ's masters have no copy. In a group without epochs the master's
        table is always the right one."""
        users, sealer = self._broker.users, self._broker.users_sealer
        if users is None or sealer is None:
            return
        request = new_request(RequestCode.AUTH_LIST_USER)
        request.fields[COPY] = version_text(users.data_version)
        response = yield request
        if response.code == ResponseCode.SUCCESS and response.body[:1] != b"{":
            return
        theirs = yield from answers.read(response, partial(read_copy, sealer))
        mine = users.data_version
        if now.epoch > 0 and version_to_keep(now, mine, theirs.version) != theirs.version:
            return
        try:
            users.adopt(theirs.users, theirs.acls, theirs.version)
        except FullAuthTable as error:
            raise BadBody(str(error)) from None

    # Deleted topics

    def _apply_deletions(self, now_ms: int) -> None:
        """Delete a topic's queues once this log has reached the end that the master's log had at
        the deletion: later records belong to the topic's next life, and count from 0."""
        if not self._deletions:
            return
        store = self._broker.store
        due = [name for name, end in self._deletions.items() if store.dispatched_log_offset >= end]
        for name in due:
            end = self._deletions.pop(name)
            try:
                deleted_ms = self._deletion_times.get(name, 0)
                deletion = store.deletions.delete(name, now_ms, end, deleted_ms)
                store.statistics.forget_topic(name)
                deletion.then(partial(self._on_deleted, name, end))
            except StoreError as error:
                logger.error("%s", error)

    def _on_unapplied_deletions(self, now_ms: int) -> None:
        """Handle deletions that the log proves, before others do: apply the master's deletions, and
        have offsets copied once more."""
        self._apply_deletions(now_ms)
        now = self._following
        if (
            now is not None
            and now.offsets is not None
            and self._broker.store.deletions.unapplied_deletions()
        ):
            now.offsets = None
            now.cuts += 1

    def _on_deleted(self, name: str, end: LogOffset, error: StoreError | None) -> None:
        """Handle the end of a deletion of topic `name`: after an error it is tried again."""
        if error is not None:
            logger.error("%s", error)
            self._deletions.setdefault(name, end)
            self._deletions_due_ms = self._steady_ms + DELETE_AGAIN_MS
        elif self._broker.role.is_master:
            self.create_from_store(self._now_ms)  # the topic's next life, unknown until now


def _read_modes(value: Any) -> tuple[dict[str, Any], dict[str, StoredAssignment]]:
    """Read the members of the answer to 402: all members, and the assignments in them. Raises
    BadBody."""
    members = bodies.as_object(value)
    return members, read_assignments(members)
