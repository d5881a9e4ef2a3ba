"""RocketMQ's configuration keys that have no effect in this broker.

Owns the table by which a configuration file of RocketMQ is accepted unchanged, a misspelt key is
reported, and a value that cannot be honoured is refused. It must never hold behaviour. config.py
has the keys that have an effect.

Tests: tests/unit/broker/config/test_config.py
"""

from typing import Final

from turbopump.broker.config.auth_config import AUTH_CLASS_KEYS
from turbopump.net.config.idle import (
    NETTY_CLIENT_KEYS,
    NETTY_SERVER_KEYS,
    IdleKey,
    idle_keys,
)

_OF_RELEASE: Final = """
    accessMessageInMemoryHotRatio int 26
    accountStatsEnable boolean true
    accountStatsPrintZeroValues boolean true
    ackMessageThreadPoolNums int 16
    ackThreadPoolQueueCapacity int 100000
    aclCacheExpiredSecond int 600
    aclCacheMaxNum int 1000
    aclCacheRefreshSecond int 60
    aclEnable boolean false refused plain_acl.yml is not read here
    adminBrokerThreadPoolNums int 16
    adminBrokerThreadPoolQueueCapacity int 10000
    appendAckAsync boolean false
    appendCkAsync boolean false
    asyncSendEnable boolean true
    authConfigPath String -
    autoDeleteUnusedStats boolean true
    autoMessageVersionOnTopicLen boolean true
    batchDispatchRequestThreadPoolNums int 16
    bitMapLengthConsumeQueueExt int 64
    bottomMostCompressionTypeForConsumeQueueStore String zstd
    broadcastOffsetExpireMaxSecond long 300
    broadcastOffsetExpireSecond long 120
    brokerConfigPath String -
    brokerFastFailureEnable boolean true here false
    cgColdReadThreshold long 3145728
    checkCRCOnRecover boolean true
    checkCommitLogOffsetOnRecover boolean false
    cleanOfflineBrokerInterval int 30000
    cleanRocksDBDirtyCQIntervalMin long 60
    cleanSwapedMapInterval long 300000
    clearRetryTopicWhenDeleteTopic boolean true
    clientManageThreadPoolNums int 32
    clientManagerThreadPoolQueueCapacity int 1000000
    clusterName String -
    coldCtrStrategyEnable boolean false
    coldDataFlowControlEnable boolean false
    coldDataScanEnable boolean false
    combineAssignOffsetCQType String default
    combineCQEnableCheckSelf boolean false
    combineCQLoadingCQTypes String default;defaultRocksDB
    combineCQMaxExtraSearchCommitLogFiles int 3
    combineCQPreferCQType String default
    combineCQUseRocksdbForLmq boolean false
    commercialBaseCount int 1
    commercialSizePerMsg int 4096
    commitCommitLogLeastPages int 4
    commitCommitLogThoroughInterval int 200
    commitIntervalCommitLog int 200
    commitLogForceSwapMapInterval long 43200000
    commitLogRecoverMaxNum int 10
    commitLogSwapMapInterval long 3600000
    commitLogSwapMapReserveFileNum int 100
    compactionCqMappedFileSize int 10485760
    compactionMappedFileSize int 104857600
    compactionScheduleInternal int 900000
    compactionThreadNum int 6
    compatibleWithOldNameSrv boolean true
    compressedRegister boolean false
    configManagerVersion String v1 refused tables are in JSON files here
    configName String -
    consumerFallbehindThreshold long 17179869184
    consumerManageThreadPoolNums int 32
    consumerManagerThreadPoolQueueCapacity int 1000000
    correctLogicMinOffsetForceInterval int 300000
    correctLogicMinOffsetSleepInterval int 1
    dLegerGroup String -
    dLegerPeers String -
    dLegerSelfId String -
    dataReadAheadEnable boolean true
    debugLockEnable boolean false
    defaultQueryMaxNum int 32
    deleteCommitLogFilesInterval int 100
    deleteConsumeQueueFilesInterval int 100
    destroyMapedFileIntervalForcibly int 120000
    disableConsumeIfConsumerReadSlowly boolean false
    disappearTimeAfterStart int -1
    diskFallRecorded boolean true
    dispatchCqCacheNum int 4096
    dispatchCqThreads int 10
    dispatchFromSenderThread boolean false
    duplicationEnable boolean false refused readers would see unconfirmed messages
    enableAcceleratedRecovery boolean false
    enableAsyncReput boolean true
    enableAutoInSyncReplicas boolean false
    enableBatchPush boolean false
    enableBroadcastOffsetStore boolean true
    enableBuildConsumeQueueConcurrently boolean false
    enableCleanExpiredOffset boolean false
    enableCompaction boolean true here false
    enableConnectionMetrics boolean true
    enableCreateSysGroup boolean true
    enableDLegerCommitLog boolean false refused DLedger does not replicate the log here
    enableDetailStat boolean true
    enableFastChannelEventProcess boolean false
    enableLagAndDlqMetrics boolean true
    enableLiteEventMode boolean true
    enableLitePopLog boolean false
    enableLmq boolean false refused messages would be missing in the light queues
    enableLmqQuota boolean false
    enableLmqStats boolean false
    enableLogConsumeQueueRepeatedlyBuildWhenRecover boolean false
    enableMessageStoreMetrics boolean true
    enableMixedMessageType boolean false
    enableMultiDispatch boolean false refused messages would be missing in the light queues
    enableNetWorkFlowControl boolean false
    enableNotifyAfterPopOrderLockRelease boolean true
    enableNotifyBeforePopCalculateLag boolean true
    enablePopBatchAck boolean false
    enablePopBufferMerge boolean false
    enablePopLog boolean false
    enablePopMessageThreshold boolean false
    enablePopMetrics boolean true
    enableRegisterProducer boolean true
    enableRemotingMetrics boolean true
    enableRequestMetrics boolean true
    enableRocksDBLog boolean false
    enableRunningFlagsInFlush boolean false
    enableScheduleAsyncDeliver boolean false
    enableScheduleMessageStats boolean true
    enableSkipLongAwaitingAck boolean false
    enableSplitMetadata boolean true
    enableSplitRegistration boolean false
    enableStatsMetrics boolean true
    enableTransactionMetrics boolean true
    endTransactionPoolQueueCapacity int 100000
    endTransactionThreadPoolNums int 12
    estimateAccumulation boolean true
    fastFailIfNoBufferInStorePool boolean false
    fetchControllerAddrByDnsLookup boolean false refused controllerAddr takes the addresses
    fetchNamesrvAddrByAddressServer boolean false refused namesrvAddr takes the addresses
    filterSupportRetry boolean false
    flushCommitLogTimed boolean true
    flushConsumeQueueLeastPages int 2
    flushConsumerOffsetHistoryInterval int 60000
    flushLeastPagesWhenWarmMapedFile int 4096
    forceRegister boolean true
    forceVerifyPropCRC boolean false refused no CRC of properties is asked for here
    forwardTimeout long 3000
    globalColdReadThreshold long 104857600
    heartbeatThreadPoolNums int 2
    heartbeatThreadPoolQueueCapacity int 50000
    highSpeedMode boolean false
    inBrokerContainer boolean false
    indexFileReadEnable boolean true
    indexFileWriteEnable boolean true
    indexRocksDBEnable boolean false refused there is no RocksDB here
    initPopOffsetByCheckMsgInMem boolean true
    isBrokerContainer boolean false
    isInBrokerContainer boolean false
    isolateLogEnable boolean false
    iteratorWhenUseRocksdbConsumeQueue boolean true
    liteEventCheckInterval long 10000
    liteEventFullDispatchDelayTime long 10000
    liteEventFullDispatchDelayTimeForWildcardGroup long 10000
    liteLagCountMetricsEnable boolean false
    liteLagLatencyCollectEnable boolean false
    liteLagLatencyMetricsEnable boolean false
    liteLagLatencyTopK int 50
    litePullMessageThreadPoolNums int 20
    litePullThreadPoolQueueCapacity int 100000
    liteSubscriptionCheckInterval long 120000
    liteSubscriptionCheckTimeoutMills long 180000
    liteTtlCheckInterval long 120000
    loadBalancePollNameServerInterval long 30000
    loadBalanceProcessorThreadPoolNums int 32
    loadBalanceThreadPoolQueueCapacity int 100000
    logicQueueForceSwapMapInterval long 43200000
    logicQueueSwapMapInterval long 3600000
    logicQueueSwapMapReserveFileNum int 20
    logicalDiskSpaceCleanForciblyThreshold double 0.8
    mappedFileSwapEnable boolean true
    maxAsyncPutMessageRequests int 5000
    maxBatchDeleteFilesNum int 50
    maxChecksumRange long 1073741824
    maxClientEventCount int 100
    maxConsumeQueueScan int 20000
    maxFilterMessageSize int 16000
    maxLiteSubscriptionCount long 100000
    maxLmqConsumeQueueNum int 20000
    maxMessageFilterNumForNotification int 64
    maxOffsetMapSize int 104857600
    maxPopPollingSize long 100000
    maxRecoveryCommitlogFiles int 30
    maxRocksDBIndexQueryDays int 7
    maxSlaveResendLength long 268435456
    maxStatsIdleTimeInMinutes int -1
    maxTopicLength int 127
    memTableFlushIntervalMs long 3600000
    messageIndexSafe boolean false
    messageStorePlugIn String '' refused messages would be missing in the other store
    metricGrpcExporterIntervalInMills long 60000
    metricGrpcExporterTimeOutInMills long 3000
    metricLoggingExporterIntervalInMills long 10000
    metricsExportBatchMaxDataPoints int 1000
    metricsGrpcExporterHeader String ''
    metricsGrpcExporterTarget String ''
    metricsInDelta boolean false
    metricsLabel String ''
    metricsOtelCardinalityLimit int 50000
    migrateAuthFromV1Enabled boolean false refused plain_acl.yml is not read here
    minLiteTTl long 900000
    osPageCacheBusyTimeOutMills long 1000
    persistConsumerOffsetIncrementally boolean false
    popCkMaxBufferSize int 200000
    popCkOffsetMaxQueueSize int 20000
    popCkStayBufferTime int 10000
    popCkStayBufferTimeOut int 3000
    popConsumerFSServiceInit boolean true
    popConsumerKVServiceEnable boolean false
    popConsumerKVServiceInit boolean false
    popConsumerKVServiceLog boolean false
    popFromRetryProbabilityForPriority int 0
    popInflightMessageThreshold long 10000
    popLongPollingForceNotifyInterval long 800
    popPollingMapExpireTimeSeconds int 600
    popPollingMapSize int 100000
    popPollingSize int 1024
    popResponseReturnActualRetryTopic boolean false
    popReviveConcurrency int 32
    popReviveMaxAttemptTimes int 16
    popReviveMaxReturnSizePerRead int 16384
    popReviveSkipIfGroupAbsent boolean true
    preferredLeaderId String -
    printChannelGroups boolean false
    printChannelGroupsMinNum int 5
    priorityOrderAsc boolean true
    processReplyMessageThreadPoolNums int 20
    pullBatchMaxMessageCount int 160
    pullMessageThreadPoolNums int 20
    pullThreadPoolQueueCapacity int 100000
    putConsumeQueueDataByFileChannel boolean true
    putMessageFutureThreadPoolNums int 2
    putMessageTimeout int 8000
    putMsgIndexHightWater int 600000
    putThreadPoolQueueCapacity int 10000
    queryMessageThreadPoolNums int 10
    queryThreadPoolQueueCapacity int 20000
    readOnlyCommitLogStorePaths String - refused the log files there would be missing
    readUnCommitted boolean false
    realTimeNotifyConsumerChange boolean true
    realTimePersistRocksDBConfig boolean true
    recheckReputOffsetFromCq boolean false
    recoverConcurrently boolean false
    recoverThreadPoolNums int 32
    redeleteHangedFileInterval int 120000
    rejectPullConsumerEnable boolean false refused pulls of any consumer are served here
    replicasPerDiskPartition int 1
    replyThreadPoolQueueCapacity int 10000
    reviveAckWaitMs long 180000
    reviveInterval long 1000
    reviveMaxSlow long 3
    reviveScanTime long 10000
    rocketmqHome String -
    rocksdbCQDoubleWriteEnable boolean false refused there is no RocksDB here
    rocksdbCompressionType String lz4
    rocksdbFlushWalFrequency int 1024
    rocksdbWalFileRollingThreshold long 1073741824
    sampleCountThreshold int 5000
    sampleSteps int 32
    scheduleAsyncDeliverMaxPendingLimit int 2000
    scheduleAsyncDeliverMaxResendNum2Blocked int 3
    searchBcqByCacheEnable boolean true
    sendMessageThreadPoolNums int 2
    sendThreadPoolQueueCapacity int 10000
    sharedByteBufferNum int 16
    skipWhenCKRePutReachMaxTimes boolean false
    spinLockCollisionRetreatOptimalDegree int 1000
    splitMetadataSize int 2000
    splitRegistrationSize int 800
    statRocksDBCQIntervalSec long 10
    statefulAuthenticationCacheExpiredSecond int 60
    statefulAuthenticationCacheMaxNum int 10000
    statefulAuthorizationCacheExpiredSecond int 60
    statefulAuthorizationCacheMaxNum int 10000
    storePathDLedgerCommitLog String -
    storeReplyMessageEnable boolean true
    storeType String default refused consume queues are files here
    syncMasterFlushOffsetWhenStartup boolean false
    timerCheckMetricsWhen String 05
    timerColdDataCheckIntervalMs int 60000
    timerEnableCheckMetrics boolean true
    timerEnableDisruptor boolean false
    timerEnableRetryUntilSuccess boolean false
    timerGetMessageThreadNum int 3
    timerInterceptDelayLevel boolean false
    timerMetricSmallThreshold int 1000000
    timerProgressLogIntervalMs int 10000
    timerPutMessageThreadNum int 3
    timerRecallToTimeWheelEnable boolean true
    timerRecallToTimelineEnable boolean true
    timerReputServiceCorePoolSize int 6
    timerReputServiceMaxPoolSize int 6
    timerReputServiceQueueCapacity int 10000
    timerRocksDBEnable boolean false refused there is no RocksDB here
    timerRocksDBPrecisionMs long 1000
    timerRocksDBRollIntervalHours int 1
    timerRocksDBRollMaxTps double 8000.0
    timerRocksDBRollRangeHours int 2
    timerRocksDBStopScan boolean false
    timerRocksDBTimeExpiredMaxTps double 200000.0
    timerSkipUnknownError boolean false
    timerWarmEnable boolean false
    timerWheelSnapshotFlush boolean false
    timerWheelSnapshotIntervalMs int 10000
    topicQueueLockNum int 32
    transRocksDBEnable boolean false refused there is no RocksDB here
    transWriteOriginTransHalfEnable boolean true
    transactionCheckRocksdbCoreThreads int 2
    transactionCheckRocksdbMaxThreads int 5
    transactionCheckRocksdbQueueCapacity int 2000
    transactionOpBatchInterval int 3000
    transferMsgByHeap boolean true
    transientStorePoolEnable boolean false
    transientStorePoolSize int 5
    travelCqFileNumWhenGetMessage int 1
    updateNameServerAddrPeriod int 120000
    useABSLock boolean false
    useMessageFilterForNotification boolean true
    usePIDColdCtrStrategy boolean true
    useReentrantLockWhenPutMessage boolean true
    useSeparateRetryQueue boolean false
    useSeparateStorePathForRocksdbCQ boolean false
    useSingleRocksDBForAllConfigs boolean false refused tables are in JSON files here
    useStaticSubscription boolean false
    userCacheExpiredSecond int 600
    userCacheMaxNum int 1000
    userCacheRefreshSecond int 60
    waitTimeMillsInAckQueue long 3000
    waitTimeMillsInAdminBrokerQueue long 5000
    waitTimeMillsInHeartbeatQueue long 31000
    waitTimeMillsInLitePullQueue long 5000
    waitTimeMillsInPullQueue long 5000
    waitTimeMillsInSendQueue long 200
    waitTimeMillsInTransactionQueue long 3000
    wakeCommitWhenPutMessage boolean true
    wakeFlushWhenPutMessage boolean false
    warmMapedFileEnable boolean false
    writeWithoutMmap boolean false
"""
"""Keys of BrokerConfig, MessageStoreConfig and AuthConfig of 5.5.0 that are not honoured, as lines
for `idle_keys`."""

_OF_OTHERS: Final = """
    abortFile String -
    checkTransactionMessageEnable boolean -
    commitLogOffsetWaitTime int -
    controllerDeployedStandAlone boolean -
    defaultReadDiskFlushRatio int -
    enableControllerInNamesrv boolean -
    haSlaveFallbehindMax int -
    messageRequestModeStorePath String -
    preferredLeader String -
    rocketmq.serialize.type String -
    storeCheckpoint String -
    storePathConsumeQueue String -
    storePathIndex String -
    tls.ciphers String - refused the ciphers are OpenSSL's defaults here
    tls.config.file String - refused write its keys into this file
    tls.protocols String - refused the protocols are OpenSSL's defaults here
"""
"""Keys of earlier releases and of RocketMQ's samples, and its system properties."""

IDLE_KEYS: Final[dict[str, IdleKey]] = {
    **NETTY_SERVER_KEYS,
    **NETTY_CLIENT_KEYS,
    **AUTH_CLASS_KEYS,
    **idle_keys(_OF_RELEASE + _OF_OTHERS),
}
"""RocketMQ's keys by name, for NodeConfig.IDLE: accepted and shown, or refused, without an
effect."""
