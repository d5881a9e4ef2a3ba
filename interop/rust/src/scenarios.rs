//! The scenarios: calls of the client, and checks of their results.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant, SystemTime};

use rocketmq::conf::{ClientOption, ProducerOption, SimpleConsumerOption};
use rocketmq::error::ClientError;
use rocketmq::model::common::{FilterExpression, FilterType};
use rocketmq::model::message::{Message, MessageBuilder, MessageView};
use rocketmq::model::transaction::{Transaction, TransactionResolution};
use rocketmq::{Producer, SimpleConsumer};

use crate::report::Report;

const COUNT: usize = 40;
const DELIVERY: Duration = Duration::from_secs(45);
const INVISIBLE: Duration = Duration::from_secs(20);
/// Invisible time that is longer than any scenario.
const LONG: Duration = Duration::from_secs(120);
const GROUPS: usize = 4;
const COLOURS: [&str; 3] = ["red", "green", "blue"];

pub struct Bench {
    endpoints: String,
    topic: String,
}

pub async fn play(name: &str, bench: &Bench, report: &Report) -> Result<(), ClientError> {
    match name {
        "simple" => bench.simple(report).await,
        "tags" => bench.tags(report).await,
        "sql" => bench.sql(report).await,
        "fifo" => bench.fifo(report).await,
        "delay" => bench.delay(report).await,
        "transaction" => bench.transaction(report).await,
        _ => panic!("no scenario of this name"),
    }
}

fn number_of(view: &MessageView) -> usize {
    String::from_utf8_lossy(view.body()).parse().expect("bodies are numbers")
}

fn numbers(views: &[MessageView]) -> Vec<usize> {
    views.iter().map(number_of).collect()
}

fn sorted(mut values: Vec<usize>) -> Vec<usize> {
    values.sort_unstable();
    values
}

fn all() -> FilterExpression {
    FilterExpression::new(FilterType::Tag, "*")
}

impl Bench {
    pub fn new(endpoints: String, topic: String) -> Self {
        Bench { endpoints, topic }
    }

    fn client(&self) -> ClientOption {
        let mut option = ClientOption::default();
        option.set_access_url(self.endpoints.clone());
        option.set_enable_tls(false);
        option.set_timeout(Duration::from_secs(10));
        // This is the deadline of the call, too; servers wait for at least 5 s.
        option.set_long_polling_timeout(Duration::from_secs(6));
        option
    }

    fn producing(&self) -> ProducerOption {
        let mut option = ProducerOption::default();
        option.set_topics(vec![self.topic.clone()]);
        option
    }

    async fn producer(&self) -> Result<Producer, ClientError> {
        let mut producer = Producer::new(self.producing(), self.client())?;
        producer.start().await?;
        Ok(producer)
    }

    async fn consumer(&self) -> Result<SimpleConsumer, ClientError> {
        let mut option = SimpleConsumerOption::default();
        option.set_topics(vec![self.topic.clone()]);
        option.set_consumer_group(self.topic.clone());
        let mut consumer = SimpleConsumer::new(option, self.client())?;
        consumer.start().await?;
        Ok(consumer)
    }

    fn with_body(&self, builder: MessageBuilder, number: usize) -> MessageBuilder {
        builder
            .set_topic(self.topic.clone())
            .set_body(number.to_string().into_bytes())
            .set_tag(COLOURS[number % COLOURS.len()])
            .set_keys(vec![format!("key-{number}")])
            .set_properties(HashMap::from([("number", number.to_string())]))
    }

    fn message(&self, number: usize) -> Result<impl Message, ClientError> {
        self.with_body(MessageBuilder::builder(), number).build()
    }

    async fn send_all(&self, producer: &Producer) -> Result<BTreeSet<String>, ClientError> {
        let mut ids = BTreeSet::new();
        for number in 0..COUNT {
            let receipt = producer.send(self.message(number)?).await?;
            ids.insert(receipt.message_id().to_string());
        }
        Ok(ids)
    }

    /// Returns the messages of a receive. RocketMQ's proxy sometimes reports an empty queue only
    /// after the deadline: then the client, or the proxy, cancels the call.
    async fn heard(
        &self,
        consumer: &SimpleConsumer,
        expression: &FilterExpression,
        invisible: Duration,
    ) -> Result<Vec<MessageView>, ClientError> {
        match consumer.receive_with(&self.topic, expression, 16, invisible).await {
            Err(error) if format!("{error:?}").contains("status: Cancelled") => Ok(vec![]),
            other => other,
        }
    }

    /// Receives until `count` messages have arrived or time is up; acknowledges all but `left`.
    async fn receive(
        &self,
        consumer: &SimpleConsumer,
        expression: &FilterExpression,
        count: usize,
        invisible: Duration,
        left: Option<usize>,
    ) -> Result<Vec<MessageView>, ClientError> {
        let (mut came, deadline) = (Vec::new(), Instant::now() + DELIVERY);
        while came.len() < count && Instant::now() < deadline {
            for view in self.heard(consumer, expression, invisible).await? {
                if Some(number_of(&view)) != left {
                    consumer.ack(&view).await?;
                }
                came.push(view);
            }
        }
        Ok(came)
    }

    /// Acknowledged messages are not redelivered; the others are, after their invisible time.
    async fn simple(&self, report: &Report) -> Result<(), ClientError> {
        let (producer, consumer) = (self.producer().await?, self.consumer().await?);
        let ids = self.send_all(&producer).await?;
        let came = self.receive(&consumer, &all(), COUNT, INVISIBLE, Some(5)).await?;
        let received = Instant::now();
        report.equal("each comes once", (0..COUNT).collect(), sorted(numbers(&came)));
        let found = came.iter().map(|view| view.message_id().to_string()).collect();
        report.equal("by the ids that sends returned", ids, found);
        let one = came.iter().find(|view| number_of(view) == 4).expect("it came");
        let found = (one.tag(), one.keys(), one.properties().get("number"), one.topic());
        let key = ["key-4".to_string()];
        let wanted = (Some("green"), &key[..], Some(&"4".to_string()), self.topic.as_str());
        report.check("with all that was said of it", wanted == found, format!("{found:?}"));
        let again = self.receive(&consumer, &all(), 1, INVISIBLE, None).await?;
        let waited = received.elapsed().as_secs_f64();
        report.equal("what is left comes again", vec![5], numbers(&again));
        let attempts = again.iter().map(|view| view.delivery_attempt()).collect();
        report.equal("its delivery is counted", vec![2], attempts);
        report.check("after its time", (5.0..35.0).contains(&waited), format!("{waited}"));
        consumer.shutdown().await?;
        producer.shutdown().await
    }

    /// The messages that pass the filter arrive.
    async fn filtered(
        &self,
        report: &Report,
        expression: FilterExpression,
        passes: fn(usize) -> bool,
    ) -> Result<(), ClientError> {
        let (producer, consumer) = (self.producer().await?, self.consumer().await?);
        self.send_all(&producer).await?;
        let passing: Vec<_> = (0..COUNT).filter(|number| passes(*number)).collect();
        let came = self.receive(&consumer, &expression, passing.len(), LONG, None).await?;
        report.equal("those that pass come", passing, sorted(numbers(&came)));
        let more = self.heard(&consumer, &expression, LONG).await?;
        report.equal("then nothing", vec![], numbers(&more));
        consumer.shutdown().await?;
        producer.shutdown().await
    }

    async fn tags(&self, report: &Report) -> Result<(), ClientError> {
        let expression = FilterExpression::new(FilterType::Tag, "red || blue");
        self.filtered(report, expression, |number| number % 3 != 1).await
    }

    async fn sql(&self, report: &Report) -> Result<(), ClientError> {
        let expression = FilterExpression::new(FilterType::Sql, "number > 9 AND TAGS <> 'red'");
        self.filtered(report, expression, |number| number > 9 && number % 3 != 0).await
    }

    /// Each message group arrives in order.
    async fn fifo(&self, report: &Report) -> Result<(), ClientError> {
        let (producer, consumer) = (self.producer().await?, self.consumer().await?);
        for number in 0..COUNT {
            let group = format!("group-{}", number % GROUPS);
            let builder = MessageBuilder::builder().set_message_group(group);
            producer.send(self.with_body(builder, number).build()?).await?;
        }
        let came = numbers(&self.receive(&consumer, &all(), COUNT, LONG, None).await?);
        for group in 0..GROUPS {
            let own = |number: &usize| number % GROUPS == group;
            let found = came.iter().copied().filter(own).collect();
            let wanted: Vec<_> = (0..COUNT).filter(own).collect();
            report.equal(&format!("group {group} in its order"), wanted, found);
        }
        consumer.shutdown().await?;
        producer.shutdown().await
    }

    /// A message arrives at its delivery time.
    async fn delay(&self, report: &Report) -> Result<(), ClientError> {
        let (producer, consumer) = (self.producer().await?, self.consumer().await?);
        let due = SystemTime::now() + Duration::from_secs(6);
        let at = due.duration_since(SystemTime::UNIX_EPOCH).expect("it is later than 1970");
        for number in 0..4 {
            let builder = MessageBuilder::builder().set_delivery_timestamp(at.as_secs() as i64);
            producer.send(self.with_body(builder, number).build()?).await?;
        }
        let came = self.receive(&consumer, &all(), 1, LONG, None).await?;
        let early = due.duration_since(SystemTime::now()).unwrap_or_default();
        report.check("when it is due", early < Duration::from_secs(2), format!("{early:?}"));
        let more = self.receive(&consumer, &all(), 4 - came.len(), LONG, None).await?;
        let found = sorted([numbers(&came), numbers(&more)].concat());
        report.equal("each comes", vec![0, 1, 2, 3], found);
        consumer.shutdown().await?;
        producer.shutdown().await
    }

    /// A commit shows the message, a rollback does not; open transactions are checked.
    async fn transaction(&self, report: &Report) -> Result<(), ClientError> {
        let asked = Arc::new(Mutex::new(BTreeSet::new()));
        let seen = asked.clone();
        let checker = Box::new(move |_id: String, view: MessageView| {
            let number = number_of(&view);
            seen.lock().expect("no check fails").insert(number);
            match number % 2 {
                0 => TransactionResolution::COMMIT,
                _ => TransactionResolution::ROLLBACK,
            }
        });
        let mut producer =
            Producer::new_transaction_producer(self.producing(), self.client(), checker)?;
        producer.start().await?;
        let consumer = self.consumer().await?;
        for number in 0..4 {
            let builder = MessageBuilder::builder().enable_transaction();
            let message = self.with_body(builder, number).build()?;
            let opened = producer.send_transaction_message(message).await?;
            match number {
                0 => opened.commit().await?,
                1 => opened.rollback().await?,
                _ => {}
            }
        }
        let came = self.receive(&consumer, &all(), 2, LONG, None).await?;
        let deadline = Instant::now() + DELIVERY;
        while asked.lock().expect("no check fails").len() < 2 && Instant::now() < deadline {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        let more = self.heard(&consumer, &all(), LONG).await?;
        let found: BTreeSet<_> = numbers(&came).into_iter().chain(numbers(&more)).collect();
        report.equal("what is committed comes", BTreeSet::from([0, 2]), found);
        let asked = asked.lock().expect("no check fails").clone();
        report.equal("what is open is asked about", BTreeSet::from([2, 3]), asked);
        consumer.shutdown().await?;
        producer.shutdown().await
    }
}
